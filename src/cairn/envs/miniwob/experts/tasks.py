"""Which tasks the scripted experts of this folder solve."""

EXPERT_TASKS = frozenset({
    "ascending-numbers", "book-flight", "book-flight-nodelay", "buy-ticket", "choose-date", "choose-date-easy",
    "choose-date-medium", "choose-date-nodelay", "choose-list", "click-button", "click-button-sequence",
    "click-checkboxes", "click-checkboxes-large", "click-checkboxes-soft", "click-checkboxes-transfer",
    "click-collapsible", "click-collapsible-2", "click-collapsible-2-nodelay", "click-collapsible-nodelay",
    "click-color", "click-dialog", "click-dialog-2", "click-link", "click-menu", "click-menu-2", "click-option",
    "click-pie", "click-shades", "click-shape", "click-tab", "click-tab-2", "click-tab-2-easy",
    "click-tab-2-hard", "click-tab-2-medium", "click-test", "click-test-2", "click-test-transfer", "click-widget",
    "copy-paste", "copy-paste-2", "count-shape", "drag-box", "drag-circle", "drag-items", "drag-single-shape",
    "drag-sort-numbers", "email-inbox", "email-inbox-delete", "email-inbox-forward", "email-inbox-forward-nl",
    "email-inbox-forward-nl-turk", "email-inbox-important", "email-inbox-nl-turk", "email-inbox-noscroll",
    "email-inbox-reply", "email-inbox-star-reply", "enter-date", "enter-password", "enter-text", "enter-text-2",
    "enter-text-dynamic", "enter-time", "find-greatest", "find-word", "focus-text", "focus-text-2", "form-sequence",
    "form-sequence-2", "form-sequence-3", "generate-number", "grid-coordinate", "guess-number", "highlight-text",
    "highlight-text-2", "identify-shape", "login-user", "login-user-popup", "multi-layouts", "multi-orderings",
    "navigate-tree", "number-checkboxes", "odd-or-even", "order-food", "phone-book", "read-table", "read-table-2",
    "resize-textarea", "scroll-text", "scroll-text-2", "search-engine", "sign-agreement", "simple-algebra",
    "simple-arithmetic", "social-media", "social-media-all", "social-media-some", "stock-market", "text-transform",
    "unicode-test", "use-autocomplete", "use-autocomplete-nodelay", "use-slider", "use-slider-2", "use-spinner",
    "visual-addition",
})  # fmt: skip
