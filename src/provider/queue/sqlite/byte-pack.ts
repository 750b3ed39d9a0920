/** Packs bodies into one buffer that moves between threads without a copy, and takes them out again. */

/** Copies: the owner of the bodies keeps them. */
export function packBytes(bodies: readonly Uint8Array[]): ArrayBuffer {
  const packed = new ArrayBuffer(bodies.reduce((total, { length }) => total + length, 0));
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
  return lengths.map((length) => {
    const view = Buffer.from(packed, at, length);
    at += length;
    return view;
  });
}
