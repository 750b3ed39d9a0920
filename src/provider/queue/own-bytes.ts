/** Bytes that are kept for as long as an attempt takes. */

/** The part of the memory behind a view that may belong to others: copying a large body costs more than its metadata takes. */
const MAX_FOREIGN_SHARE = 1 / 8;

/**
 * Copies a view into separate memory, unless most of the memory is its own. A view keeps everything that it was received with, and `Buffer.from`
 * takes small copies from a slab of 64 KiB: each of many slow attempts with a small body would hold that much, while the limits count only the body.
 */
export function toOwnBytes(view: Buffer): Buffer {
  const { byteLength } = view.buffer;
  if (byteLength - view.length <= MAX_FOREIGN_SHARE * byteLength) return view;
  const own = Buffer.allocUnsafeSlow(view.length);
  own.set(view);
  return own;
}
