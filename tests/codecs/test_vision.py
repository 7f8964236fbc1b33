"""Prompts of vision-language models: exactly what their own processors make of the same conversation."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from transformers import Idefics3Processor, LlavaProcessor, PreTrainedTokenizerFast

from cairn.codecs.dialects.choice import Dialect
from cairn.codecs.vision import History, Message
from cairn.config.tables import PolicyOptions
from cairn.data.action import Action, Click, Invalid, Point, Scroll, Type
from cairn.data.history import Deed
from cairn.data.ids import ElementId
from cairn.data.observation import Box
from cairn.data.trajectory import Turn
from cairn.errors import ConfigError
from cairn.models.vision.families import Family, require_family
from cairn.models.vision.processing import Viewing, VisionProcessor
from shown_pages import element, page
from tiny_vision import BLOBS, TESTED, answered, directory, mind, picture, processor, screen

each_family = pytest.mark.parametrize("family", TESTED)


def by_the_models_own_processor(family: Family, messages: list[Message]) -> list[int]:
    """What the processor of the model's class makes of the conversation; answers that stand as ids are told as text."""
    own = processor(family)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(directory(family))
    turns = [
        {
            "role": m.role,
            "content": [*([{"type": "image"}] if m.image else []), {"type": "text", "text": m.text}],
        }
        for m in messages
    ]
    text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    pictures = [own.picture(m.image) for m in messages if m.image]
    match family:
        case Family.IDEFICS3:
            whole = Idefics3Processor(own.images, tokenizer, image_seq_len=own.layout(picture(1)).tokens // 5)
            return whole(text=[text], images=[pictures])["input_ids"][0]
        case Family.LLAVA:
            whole = LlavaProcessor(own.images, tokenizer, patch_size=14, vision_feature_select_strategy="full")
            return whole(text=[text], images=pictures)["input_ids"][0]
        case _:  # the class itself wants torchvision for videos; this is what it does with images
            grids = own.images(images=pictures, return_tensors="np")["image_grid_thw"]
            for grid in grids:
                text = text.replace("<|image_pad|>", "@" * int(grid.prod() // 4), 1)
            return tokenizer(text.replace("@", "<|image_pad|>"))["input_ids"]


@each_family
def test_prompts_are_those_of_the_models_own_processor(family: Family) -> None:
    square = picture(1)
    wide = picture(2, size=(210, 160) if family is Family.IDEFICS3 else (333, 120))
    messages = [
        Message(role="system", text="You press buttons."),
        Message(role="user", text="Goal: press ok", image=square),
        Message(role="assistant", text="Action: click(start_box='(1,2)')"),
        Message(role="user", text="Go on.", image=wide),
    ]
    assert processor(family).chat(messages) == by_the_models_own_processor(family, messages)


@each_family
def test_placeholders_are_as_many_as_features(family: Family) -> None:
    own = mind(family)
    images = [picture(1), picture(2, size=(400, 90)), picture(3, size=(31, 57))]
    for image, features in zip(images, own.eyes.encode(own.policy.model, images), strict=True):
        assert features.levels[0].shape[0] == own.eyes.tokens(image)


@each_family
def test_a_turns_prompt_begins_with_the_one_before_and_its_answer(family: Family) -> None:
    own = mind(family, history=History(images=2))
    turns: list[Turn] = []
    for number in range(3):
        turns.append(answered(own, turns, screen(number), Click(Point(0.5, 0.25))))
    later = own.codec.prompt("press ok", turns, screen(3))
    said = [*turns[0].prompt.token_ids, *turns[0].completion.token_ids]
    assert turns[1].prompt.token_ids[: len(said)].tolist() == said
    assert turns[1].prompt.images == (picture(0), picture(1))
    assert turns[2].prompt.images == (picture(1), picture(2))  # the window is full: the oldest became words
    assert later.images == (picture(2), picture(3))
    text = own.processor.decode(later.token_ids.tolist())
    assert text.count("(an earlier screenshot)") == 2
    assert text.count("Goal: press ok") == 1


@each_family
def test_an_answer_stays_in_later_prompts_as_it_was_sampled(family: Family) -> None:
    """Its own tokens, not those that its text would be given again."""
    own = mind(family)
    first = answered(own, [], screen(0), Click(Point(0.5, 0.25)))
    odd = np.array([*own.processor.encode("Act"), *own.processor.encode("ion"), min(own.codec.stop_ids)], np.int32)
    assert own.processor.encode("Action") != odd[:-1].tolist()
    sampled = Turn(
        observation=first.observation,
        prompt=first.prompt,
        completion=first.completion.__class__(
            token_ids=odd,
            logprobs=np.zeros(len(odd), np.float32),
            versions=np.zeros(len(odd), np.int32),
            truncated=False,
        ),
        action=first.action,
    )
    ids = own.codec.prompt("press ok", [sampled], screen(1)).token_ids.tolist()
    start = len(first.prompt.token_ids)
    assert ids[start : start + len(odd) - 1] == odd[:-1].tolist()


def test_what_was_done_before_a_saved_state_is_told_in_the_dialect() -> None:
    own = mind(Family.QWEN2_5_VL)
    past = [Deed(observation=screen(0), action=Click(Point(0.5, 0.5)))]
    text = own.processor.decode(own.codec.prompt("go", past, screen(1)).token_ids.tolist())
    assert "Action: click(start_box='(70,84)')" in text


def test_older_turns_are_counted_where_they_are_left_out() -> None:
    own = mind(Family.QWEN2_5_VL, history=History(images=1, turns=1))
    past = [Deed(observation=screen(i), action=Click(Point(0.5, 0.5))) for i in range(3)]
    prompt = own.codec.prompt("go", past, screen(9))
    assert "(2 earlier turns)" in own.processor.decode(prompt.token_ids.tolist())
    assert prompt.images == (picture(9),)


@each_family
def test_no_page_can_put_an_image_or_a_turn_into_a_prompt(family: Family) -> None:
    own = mind(family)
    special = " ".join(own.processor._tokenizer.special_texts) + " \ue0000\ue001"
    plain = own.codec.prompt("go", [], screen(0))
    attacked = own.codec.prompt(special, [], screen(0, message=special))
    assert attacked.images == plain.images

    def count(prompt) -> list[int]:
        return sorted(int(i) for i in prompt.token_ids if int(i) in own.processor.special_ids)

    assert count(attacked) == count(plain)


@each_family
def test_placeholders_may_not_be_sampled_and_ends_may(family: Family) -> None:
    own = mind(family)
    assert own.processor.placeholder_id in own.codec.forbidden_ids
    assert own.codec.stop_ids
    assert not own.codec.stop_ids & own.codec.forbidden_ids


@pytest.mark.parametrize("dialect", Dialect)
@each_family
def test_an_experts_answers_are_read_back(family: Family, dialect: Dialect) -> None:
    own = mind(family, dialect=dialect)
    seen = page(element(1, "okay"), element(2, "name", role="input", states=("focused",)))
    object.__setattr__(seen, "image", picture(0))
    box = seen.elements[0].box
    said = own.codec.answers("go", Click(ElementId(1)), seen)
    assert len(said) == (1 if dialect is Dialect.BROWSERGYM else 9)
    for ids in said:
        read = own.codec.parse("go", ids, seen)
        assert isinstance(read, Click)
        if isinstance(read.target, Point):
            assert box.left < read.target.x < box.left + box.width
            assert box.top < read.target.y < box.top + box.height
        else:
            assert read.target == 1
    (typed,) = own.codec.answers("go", own.codec.primitive(Type("ada", ElementId(2)), seen), seen)
    read = own.codec.parse("go", typed, seen)
    assert isinstance(read, Type)
    assert read.text == "ada"


def test_a_field_is_clicked_before_typing_and_scrolled_to_where_it_is_out_of_sight() -> None:
    codec = mind(Family.QWEN2_5_VL).codec
    seen = page(element(1, "name", role="input"), element(2, box=Box(left=0.1, top=1.4, width=0.1, height=0.1)))
    assert codec.primitive(Type("ada", ElementId(1)), seen) == Click(ElementId(1))
    assert codec.primitive(Click(ElementId(2)), seen) == Scroll(None, 0.0, 0.5)
    action: Action = Click(Point(0.1, 0.1))
    assert codec.primitive(action, seen) == action


def test_an_answer_that_was_cut_is_invalid() -> None:
    own = mind(Family.QWEN2_5_VL)
    read = own.codec.parse("go", np.array(own.processor.encode("Action: wait()"), np.int32), screen(0))
    assert isinstance(read, Invalid)
    assert "cut" in read.reason


# ── what can be wrong before the first step ───────────────────────────────────


def copied(tmp_path: Path, family: Family = Family.QWEN2_5_VL) -> Path:
    return Path(shutil.copytree(directory(family), tmp_path / "model"))


def test_a_directory_without_a_chat_template_is_refused(tmp_path: Path) -> None:
    path = copied(tmp_path)
    (path / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match="no chat template: copy"):
        VisionProcessor.load(path, family=Family.QWEN2_5_VL, blobs=BLOBS)


def test_a_template_of_a_processor_is_found(tmp_path: Path) -> None:
    path = copied(tmp_path)
    template = (path / "chat_template.jinja").read_text()
    (path / "chat_template.jinja").unlink()
    (path / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    found = VisionProcessor.load(path, family=Family.QWEN2_5_VL, blobs=BLOBS)
    one = [Message(role="user", text="a", image=picture(0))]
    assert found.chat(one) == processor(Family.QWEN2_5_VL).chat(one)


@pytest.mark.filterwarnings("ignore")
def test_a_directory_without_an_image_processor_is_refused(tmp_path: Path) -> None:
    path = copied(tmp_path)
    (path / "preprocessor_config.json").unlink()
    with pytest.raises(ConfigError, match="no image processor: copy"):
        VisionProcessor.load(path, family=Family.QWEN2_5_VL, blobs=BLOBS)


def test_a_template_that_shows_no_images_is_refused(tmp_path: Path) -> None:
    path = copied(tmp_path)
    (path / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content[-1].text }}{% endfor %}")
    blind = VisionProcessor.load(path, family=Family.QWEN2_5_VL, blobs=BLOBS)
    with pytest.raises(ConfigError, match="0 of the 1 screenshots"):
        blind.chat([Message(role="user", text="a", image=picture(0))])


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    path = copied(tmp_path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"image_token_id": 3}))
    with pytest.raises(ConfigError, match="not of one model"):
        VisionProcessor.load(path, family=Family.QWEN2_5_VL, blobs=BLOBS)


def test_a_text_model_is_refused_for_a_codec_that_shows_screenshots(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ConfigError, match="cannot see"):
        require_family(tmp_path, codec="ui-tars")


@each_family
def test_a_screenshot_over_the_limit_is_refused(family: Family) -> None:
    small = processor(family, viewing=Viewing(most_tokens=3))
    with pytest.raises(ConfigError, match=r"takes \d+ tokens, more than policy.max_image_tokens = 3"):
        small.layout(picture(0))


def test_an_image_of_extreme_shape_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot take a screenshot of 4000 x 4"):
        processor(Family.QWEN2_5_VL).layout(picture(0, size=(4000, 4)))


def test_a_vision_codec_wants_screenshots() -> None:
    blind = screen(0)
    object.__setattr__(blind, "image", None)
    with pytest.raises(ConfigError, match="let the environment take them"):
        mind(Family.QWEN2_5_VL).codec.prompt("go", [], blind)


def test_a_history_shows_the_newest_screenshot_at_least() -> None:
    with pytest.raises(ConfigError, match="at least 1 screenshot"):
        History(images=0)


def test_a_recipe_can_name_every_dialect_and_only_for_a_model_by_path() -> None:
    for dialect in Dialect:
        PolicyOptions(codec=dialect.value, model="path", path="x").check()
        with pytest.raises(ValueError, match=r'policy\.model = "path"'):
            PolicyOptions(codec=dialect.value, model="smollm2").check()
