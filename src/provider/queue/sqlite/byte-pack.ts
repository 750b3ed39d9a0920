/** Packs bodies into one buffer that moves between threads without a copy, and takes them out again. */

/** Copies: the owner of the bodies keeps them. */
export function packBytes(bodies: readonly Uint8Array[]): ArrayBuffer {
  let total = 0;
  for (const { length } of bodies) total += length;
  const packed = new ArrayBuffer(total);
  const bytes = new Uint8Array(packed);
  let offset = 0;
  for (const body of bodies) {
    bytes.set(body, offset);
    offset += body.length;
  }
  return packed;
}

/** Views of `packed`, from `offset`. */
export function splitBytes(packed: ArrayBuffer, lengths: readonly number[], offset = 0): Buffer[] {
  let at = offset;
  const views: Buffer[] = [];
  for (const length of lengths) {
    views.push(Buffer.from(packed, at, length));
    at += length;
  }
  return views;
}
