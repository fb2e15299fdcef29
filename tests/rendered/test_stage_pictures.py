"""Pictures of the visitor's own in scene 3 of the stage: files, drops, pastes, the camera; what is no
picture. Needs `make book`."""

import base64
import re

import pytest
from helpers.network_scene import (
    MODES,
    SEEN,
    choose,
    noise,
    picture,
    ready,
    seen_image,
    sentence,
    state_of,
    switch,
)
from PIL import Image
from playwright.sync_api import expect

from attnconv import load_model

TRANSFER = """(given) => {
  const transfer = new DataTransfer();
  for (const { name, type, base64 } of given) {
    transfer.items.add(new File([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], name, { type }));
  }
  return transfer;
}"""
GIVE = """([way, transfer]) => {
  const target = document.querySelector(".stage-pixels"), options = { bubbles: true, cancelable: true };
  if (way === "paste") document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer, ...options }));
  else for (const kind of ["dragover", "drop"]) target.dispatchEvent(new DragEvent(kind, { dataTransfer: transfer, ...options }));
}"""


def give(page, file, way):
    """Choose a picture, drop it on the stage or paste it."""
    if way == "choose":
        return choose(page, file)
    given = {"name": file["name"], "type": file["mimeType"]}
    given["base64"] = base64.b64encode(file["buffer"]).decode()
    page.evaluate(GIVE, [way, page.evaluate_handle(TRANSFER, [given])])


def test_the_networks_see_the_visitors_picture_which_stays_in_the_page(scene):
    """No mode was visited before: all that they need was asked for on entering the scene."""
    page, asked, transform = scene("alpha=exact", fresh=True).page, [], load_model("cnn").transform
    page.context.on("request", lambda request: asked.append(request.url))
    pictures = page.get_by_label("Picture", exact=True)
    for seed, way in enumerate(("choose", "drop", "paste")):
        mine = noise(seed=seed)
        pictures.select_option("chelsea")
        give(page, picture(mine), way)
        expect(pictures).to_have_value("own")
        assert not page.evaluate("document.querySelector('.stage').hasAttribute('data-drop')")
        for mode in reversed(MODES):
            switch(page, mode)
        assert (seen_image(page)[0] - transform(mine)).abs().max() < 0.03, way
        for tab in (0, 2):
            page.get_by_role("tab").nth(tab).click()
        ready(page)
        assert "picture" not in state_of(page, mode="twin"), way
    # Chromium asks for the icon anew whenever the address changes.
    assert not [url for url in asked if not re.search("^blob:|favicon", url)]


def test_a_picture_of_the_largest_size_is_read(scene):
    page = scene("alpha=exact").page
    choose(page, picture(Image.new("RGB", (8000, 6000), "red")))
    expect(page.get_by_label("Picture", exact=True)).to_have_value("own")
    ready(page)
    expect(page.locator(".stage-note")).to_have_text("")
    assert page.evaluate(SEEN) == 32 * 32 * [255, 0, 0, 255]
    assert "The CNN says" in sentence(page)


def test_a_picture_is_turned_as_its_exif_data_say(scene):
    page = scene("alpha=exact").page
    image = noise().resize((8, 8)).resize((120, 80))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    choose(page, picture(image, "JPEG", exif=exif, quality=95))
    expect(page.get_by_label("Picture", exact=True)).to_have_value("own")
    ready(page)
    expected = load_model("cnn").transform(image.transpose(Image.Transpose.ROTATE_270))
    assert (seen_image(page)[0] - expected).abs().mean() < 0.1


def test_of_an_animation_the_first_frame_is_taken(scene):
    page = scene("alpha=exact").page
    red, blue = (Image.new("RGB", (40, 40), colour) for colour in ("red", "blue"))
    note, settings = page.locator(".stage-note"), {"save_all": True, "duration": 50, "loop": 0}
    for kind in ("GIF", "PNG", "WEBP"):
        choose(page, picture(red, kind, append_images=[blue], **settings))
        expect(note).to_have_text("This picture is animated; the networks see its first frame.")
        choose(page, picture(red, kind))
        expect(note).to_have_text("")
    choose(page, picture(red, "GIF", append_images=[blue], **settings))
    expect(page.get_by_label("Picture", exact=True)).to_have_value("own")
    ready(page)
    assert page.evaluate(SEEN)[:4] == [255, 0, 0, 255]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (
            ("a.txt", b"no picture"),
            "“a.txt” is no picture that this browser can open; choose a PNG",
        ),
        (("empty.png", b""), "“empty.png” is no picture that this browser can open"),
        (("half.png", b"\x89PNG\r\n\x1a\n"), "“half.png” is no picture that this browser can open"),
        (
            ("wide.png", (8001, 20)),
            "This picture has 8001 × 20 pixels; no side may exceed 8000",
        ),
    ],
    ids=["text", "empty", "cut off", "too wide"],
)
def test_what_is_no_picture_is_refused_in_one_sentence(scene, file, expected):
    page = scene("alpha=exact").page
    name, content = file
    given = picture(Image.new("RGB", content))["buffer"] if isinstance(content, tuple) else content
    choose(page, {"name": name, "mimeType": "image/png", "buffer": given})
    expect(page.locator(".stage-note")).to_contain_text(expected)
    expect(page.locator(".stage-said")).to_contain_text(expected)
    expect(page.get_by_label("Picture", exact=True)).to_have_value("chelsea")
    choose(page, picture(noise()))
    expect(page.locator(".stage-note")).to_have_text("")
    expect(page.get_by_label("Picture", exact=True)).to_have_value("own")


def test_the_camera_takes_a_picture_or_says_that_it_cannot(scene):
    page = scene("alpha=exact", fresh=True).page
    page.evaluate(
        "() => { navigator.mediaDevices.getUserMedia = () => Promise.reject(new Error('denied')); }"
    )
    page.get_by_role("button", name="Camera").click()
    expect(page.locator(".stage-note")).to_contain_text(
        "The camera is unavailable or was not allowed; choose"
    )
    page.evaluate("""() => {
      const canvas = document.createElement("canvas"), context = canvas.getContext("2d");
      const paint = () => { context.fillStyle = "rgb(0 0 255)"; context.fillRect(0, 0, canvas.width, canvas.height); };
      setInterval(paint, 30);
      window.stream = canvas.captureStream();
      navigator.mediaDevices.getUserMedia = async () => window.stream;
    }""")
    page.get_by_role("button", name="Camera").click()
    expect(page.get_by_label("Picture", exact=True)).to_have_value("own")
    ready(page)
    red, _, blue, _ = page.evaluate(SEEN)[:4]
    assert blue > 200 > 50 > red
    assert page.evaluate("stream.getTracks().every(({ readyState }) => readyState === 'ended')")
