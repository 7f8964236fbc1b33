// Mail and social feeds.

const MAIL_ACTIONS = [[/reply/, "reply"], [/forward/, "forward"], [/trash/, "delete"], [/star/, "star"]];
const mailGoal = () => {
  const { by, to, message, task } = fields();
  if (by) return { action: task ?? "forward", by, to, message };
  const [sender] = read(/the email by (.*?) and /);
  const [receiver] = read(/forward that email to (.*?)\.?$/);
  const action = MAIL_ACTIONS.find(([pattern]) => pattern.test(goal()))[1];
  return { action, by: sender, to: receiver, message: quoted()[0] };
};
const mail = () => {
  const { action, by, to, message } = mailGoal();
  if (shown("#reply")) return fill(one("#reply-text"), message) ?? click(one("#send-reply"));
  if (shown("#forward")) return fill(one(".forward-sender"), to) ?? click(one("#send-forward"));
  if (shown("#email")) return click(one(`#email .email-${action}`));
  const thread = all("#main .email-thread").find((row) => text(one(".email-sender", row)) === by);
  if (action === "delete") return click(one(".trash", thread));
  return click(one(action === "star" ? ".star" : ".email-sender", thread));
};

const FEED_ACTIONS = {
  Reply: "reply", Retweet: "retweet", Like: "like", Share: "share", "Share via DM": "share",
  "Copy link to Tweet": "copy", "Embed Tweet": "embed", Mute: "menu-user", Block: "block-user", Report: "report",
};
const postsBy = (user) => all(".media").filter((post) => text(one(".username", post)) === user);
const onePost = () => {
  const [user] = read(/For the user (@\S+),/);
  const button = one(`.${FEED_ACTIONS[quoted()[0]]}`, postsBy(user)[0]);
  return click(visible(button) ? button : one(".more", postsBy(user)[0]));
};
const manyPosts = () => {
  const [count, user] = read(/on (all|\d+) posts? by (@\S+) and then/);
  const buttons = postsBy(user).map((post) => one(`.${FEED_ACTIONS[quoted()[0]]}`, post));
  const open = buttons.filter((button) => !button.classList.contains("active"));
  const wanted = count === "all" ? buttons.length : Number(count);
  return click(buttons.length - open.length < wanted ? open[0] : one("#submitRow button"));
};

Object.assign(experts, {
  "email-inbox": mail,
  "email-inbox-delete": mail,
  "email-inbox-forward": mail,
  "email-inbox-forward-nl": mail,
  "email-inbox-forward-nl-turk": mail,
  "email-inbox-important": mail,
  "email-inbox-nl-turk": mail,
  "email-inbox-noscroll": mail,
  "email-inbox-reply": mail,
  "email-inbox-star-reply": mail,
  "social-media": onePost,
  "social-media-all": manyPosts,
  "social-media-some": manyPosts,
});
