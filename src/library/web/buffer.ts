/** The part of Node's Buffer that the verification uses, on Uint8Array. The build of the library puts it in place of the global. */

type Encoding = 'utf8' | 'latin1' | 'binary' | 'hex' | 'base64' | 'base64url' | 'ascii';

/** Arguments of a call are limited in number. */
const SLICE = 8_192;
const HEX = /^(?:[0-9a-f]{2})*/i;

function fromLatin1(text: string): number[] | Uint8Array {
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  return bytes;
}

function toLatin1(bytes: Uint8Array): string {
  let text = '';
  for (let at = 0; at < bytes.length; at += SLICE) text += String.fromCharCode(...bytes.subarray(at, at + SLICE));
  return text;
}

/** Empty for text that is not base64: callers encode the bytes again, and compare. */
function fromBase64(text: string): number[] | Uint8Array {
  try {
    return fromLatin1(atob(text));
  } catch {
    return [];
  }
}

function encode(text: string, encoding: Encoding = 'utf8'): number[] | Uint8Array {
  switch (encoding) {
    case 'utf8':
      return new TextEncoder().encode(text);
    case 'hex':
      return (HEX.exec(text)?.[0].match(/../g) ?? []).map((digits) => Number.parseInt(digits, 16));
    case 'base64':
    case 'base64url':
      return fromBase64(text.replaceAll('-', '+').replaceAll('_', '/'));
    default:
      return fromLatin1(text);
  }
}

/** Bytes with the methods of Node's Buffer. */
class WebBuffer extends Uint8Array {
  static override from(source: string | ArrayLike<number> | Iterable<number>, encoding?: unknown): WebBuffer {
    const bytes = typeof source === 'string' ? encode(source, encoding as Encoding | undefined) : (source as ArrayLike<number>);
    const made = new WebBuffer(bytes.length);
    made.set(bytes);
    return made;
  }

  static alloc(size: number): WebBuffer {
    return new WebBuffer(size);
  }

  static allocUnsafe(size: number): WebBuffer {
    return new WebBuffer(size);
  }

  static isBuffer(value: unknown): boolean {
    return value instanceof WebBuffer;
  }

  static byteLength(text: string, encoding?: Encoding): number {
    return encode(text, encoding).length;
  }

  static concat(parts: readonly Uint8Array[]): WebBuffer {
    const made = new WebBuffer(parts.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const part of parts) {
      made.set(part, at);
      at += part.length;
    }
    return made;
  }

  equals(other: Uint8Array): boolean {
    return this.length === other.length && this.every((byte, at) => byte === other[at]);
  }

  override indexOf(value: number | string | Uint8Array, from = 0): number {
    if (typeof value === 'number') return super.indexOf(value, from);
    const wanted = typeof value === 'string' ? encode(value) : value;
    const [first] = wanted;
    if (first === undefined) return Math.min(from, this.length);
    for (let at = super.indexOf(first, from); at !== -1; at = super.indexOf(first, at + 1))
      if (wanted.every((byte: number, index: number) => this[at + index] === byte)) return at;
    return -1;
  }

  override includes(value: number | string | Uint8Array, from = 0): boolean {
    return this.indexOf(value, from) !== -1;
  }

  copy(target: Uint8Array, at = 0): number {
    const bytes = this.subarray(0, Math.max(target.length - at, 0));
    target.set(bytes, at);
    return bytes.length;
  }

  write(text: string, at = 0, encoding?: Encoding): number {
    return WebBuffer.from(text, encoding).copy(this, at);
  }

  readUIntBE(at: number, length: number): number {
    return this.subarray(at, at + length).reduce((sum, byte) => sum * 256 + byte, 0);
  }

  override toString(encoding: Encoding = 'utf8', start = 0, end = this.length): string {
    const bytes = start === 0 && end === this.length ? this : this.subarray(start, end);
    switch (encoding) {
      case 'utf8':
        return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
      case 'hex':
        return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
      case 'base64':
        return btoa(toLatin1(bytes));
      case 'base64url':
        return btoa(toLatin1(bytes)).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
      default:
        return toLatin1(bytes);
    }
  }
}

export { WebBuffer as Buffer };
