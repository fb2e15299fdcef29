/** Pictures of the visitor's own for scene 3, from a file or the camera. They stay in the page. */
import { element } from "../shell/dom.js";
import { refusal } from "./input.js";

const LARGEST_SHORT_SIDE = 512; // larger pictures are reduced to it first; a network sees 32 pixels
const EXPOSURE_SECONDS = 0.6; // a camera's first frames are dark

/** A picture as a canvas; throws, with a sentence for the reader, for what is none. */
function canvasFrom(source, width, height) {
  const problem = refusal(width, height);
  if (problem) throw new Error(problem);
  const scale = Math.min(1, LARGEST_SHORT_SIDE / Math.min(width, height)),
    [w, h] = [width, height].map((side) => Math.max(1, Math.round(side * scale)));
  const canvas = element("canvas", { width: w, height: h }),
    context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.drawImage(source, 0, 0, w, h);
  return canvas;
}

/** Whether a GIF, PNG or WebP file says near its start that it is animated. */
const isAnimated = async (file) => /NETSCAPE2\.0|acTL|ANIM/.test(await file.slice(0, 1 << 16).text());

/** A file as a canvas: turned as its EXIF data say, an animation's first frame, with a `note` on that. Its size is known before it is
 *  decoded. */
export async function pictureFromFile(file) {
  const url = URL.createObjectURL(file),
    image = new Image();
  try {
    await new Promise((resolve, reject) => {
      image.onload = resolve;
      image.onerror = reject;
      image.src = url;
    }).catch(() => {
      const name = file.name ? `“${file.name.slice(0, 40)}”` : "This";
      throw new Error(`${name} is no picture that this browser can open; choose a PNG, JPEG or WebP file.`);
    });
    const note = (await isAnimated(file)) ? "This picture is animated; the networks see its first frame." : "";
    return Object.assign(canvasFrom(image, image.naturalWidth, image.naturalHeight), { note });
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** What the camera sees, once, as a canvas. */
export async function pictureFromCamera() {
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch {
    throw new Error("The camera is unavailable or was not allowed; choose a file instead.");
  }
  try {
    const video = element("video", { playsinline: true });
    video.muted = true;
    video.srcObject = stream;
    await video.play();
    await new Promise((resolve) => setTimeout(resolve, 1000 * EXPOSURE_SECONDS));
    return canvasFrom(video, video.videoWidth, video.videoHeight);
  } finally {
    for (const track of stream.getTracks()) track.stop();
  }
}
