/** Bytes that are kept for as long as an attempt takes. */

/**
 * Copies a view into separate memory. A view keeps everything that it was received with, and `Buffer.from` takes small copies from a slab of
 * 64 KiB: each of many slow attempts with a small body would hold that much, while the limits count only the body.
 */
export function toOwnBytes(view: Buffer): Buffer {
  if (view.length === view.buffer.byteLength) return view;
  const own = Buffer.allocUnsafeSlow(view.length);
  own.set(view);
  return own;
}
