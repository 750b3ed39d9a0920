/** Reads elements of DER (X.690): as much as the gate needs of lists and certificates that OpenSSL has parsed already. */

/** One element: its tag, and where its value starts and ends. */
interface DerElement {
  readonly tag: number;
  readonly start: number;
  readonly end: number;
}

/** The element at an offset. Undefined if it has another tag than `tag`, or if its value is incomplete (X.690 §8.1). */
export function readElement(der: Buffer, at: number, tag = der[at]): DerElement | undefined {
  if (tag === undefined || at + 2 > der.length || der[at] !== tag) return undefined;
  const first = der[at + 1] as number;
  const digits = first < 0x80 ? 0 : first & 0x7f;
  const start = at + 2 + digits;
  if (digits > 4 || start > der.length) return undefined;
  const length = digits === 0 ? first : der.readUIntBE(at + 2, digits);
  return start + length > der.length ? undefined : { tag, start, end: start + length };
}
