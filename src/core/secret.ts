/** Key material that cannot be logged, printed or serialized by accident, and how it is found in content that is stored. */
import { inspect } from 'node:util';
import type { Fault } from './problem.ts';

const MASK = '[secret]';

/** Bytes that only `expose()` returns. Any other output shows `[secret]`. */
export class Secret {
  readonly #bytes: Buffer;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  /** The bytes. The caller must not log, store or copy them more than necessary. */
  expose(): Buffer {
    return this.#bytes;
  }

  /** Length in bytes, the only property of a secret that may be shown. */
  get length(): number {
    return this.#bytes.length;
  }

  toString(): string {
    return MASK;
  }

  toJSON(): string {
    return MASK;
  }

  [inspect.custom](): string {
    return MASK;
  }
}

/** A secret, or why it could not be read. */
export type SecretRead = { readonly secret: Secret; readonly warnings: readonly string[] } | Fault;

/** Of UTF-8 or UTF-16, as a text of Latin-1: programs on Windows write it. */
const BYTE_ORDER_MARK = /^(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)/;
/** Control and format characters, line breaks, and other spaces than the usual one. */
const INVISIBLE = /(?! )[\p{C}\p{Z}]/u;
const WHITESPACE = new Set([0x20, 0x09, 0x0a, 0x0d]);

/** The secret in a text that `where` names. Trailing whitespace is removed, because editors and `echo` add it. */
export function toSecret(bytes: Buffer, where: string): SecretRead {
  let end = bytes.length;
  while (end > 0 && WHITESPACE.has(bytes[end - 1] as number)) end--;
  if (end === 0) return { problem: `${where} is empty`, hint: 'with an empty secret, anyone could sign requests' };
  const warnings = WHITESPACE.has(bytes[0] as number)
    ? [`the secret in ${where} starts with whitespace, which is part of the secret`]
    : [];
  const text = bytes.toString('latin1', 0, end);
  if (/^["'`]/.test(text) && text[0] === text.at(-1)) warnings.push(`the secret in ${where} is in quotation marks: remove them`);
  if (BYTE_ORDER_MARK.test(text))
    warnings.push(
      `the secret in ${where} starts with a byte order mark, which is part of the secret: save it as UTF-8 without one`,
    );
  // Keys in PEM and JSON have lines; what is not UTF-8 is a key of any bytes.
  const decoded = bytes.toString('utf8', 0, end);
  if (warnings.length === 0 && INVISIBLE.test(decoded) && !/^-----BEGIN|^\{|\ufffd/.test(decoded))
    warnings.push(
      `the secret in ${where} has a line break or an invisible character in it, which is part of the secret: write one secret without it`,
    );
  if (isPlaceholder(text))
    warnings.push(`the secret in ${where} looks like a placeholder, which anyone can guess: write the real secret into it`);
  return { secret: new Secret(bytes.subarray(0, end)), warnings };
}

/** Of documentation and templates; and what a tool should have replaced: a reference to a secret, the path of its file, or a line of a shell. */
const PLACEHOLDER = /change-?me|replace-?me|goes-here|placeholder/;
const PLACEHOLDER_START = /^(?:your-|enc\[|op:\/\/|arn:aws:|\/run\/secrets\/|(?:undefined|null)$)/;
const SHELL_LINE = /^(?:\$[A-Z_]+$|export [A-Za-z_]+=)/;
const PLACEHOLDER_FRAME = /^(?:<.*>|\$\{.*\}|\{\{.*\}\})$/s;

function isPlaceholder(text: string): boolean {
  const plain = text.toLowerCase().replaceAll('_', '-').replaceAll(' ', '-');
  const isKnown = [PLACEHOLDER, PLACEHOLDER_START, PLACEHOLDER_FRAME].some((each) => each.test(plain));
  return isKnown || SHELL_LINE.test(text) || new Set(plain).size === 1;
}

/** `\u002f`, `\/` or `%2f`; a character beyond U+FFFF is two escapes in a row. */
const ESCAPE = /((?:\\u[0-9a-f]{4})+)|\\([^u])|%([0-9a-f]{2})/gi;
/** A shorter one could be in any content. */
const MIN_DECODED_LENGTH = 8;
/** The beginning of a longer one is enough. */
const MAX_SEARCHED_LENGTH = 128;
const UNIT_LENGTH = '\\u002f'.length;
/** JSON in a string of JSON, in a parameter of a form. */
const MAX_LAYERS = 3;
/** How many bytes one byte of a secret can take: each layer may write `\u005c` for a character of the layer below. */
const MAX_ESCAPED_LENGTH = UNIT_LENGTH ** MAX_LAYERS;

/**
 * Whether the content contains one of the secrets, also if JSON or a form escapes its characters. `length`: only the beginning is stored or
 * shown, which must not contain a part of a secret, either.
 */
export function containsSecret(content: Buffer, secrets: readonly Buffer[], length = content.length): boolean {
  const { longest, forms, texts } = compileForms(secrets);
  const searched = content.subarray(0, length + longest * MAX_ESCAPED_LENGTH);
  if (forms.some((form) => searched.includes(form))) return true;
  if (forms.length === 0 || !(searched.includes('\\') || searched.includes('%'))) return false;
  let decoded = searched.toString('latin1');
  for (let layer = 0; layer < MAX_LAYERS; layer++) {
    const before = decoded;
    decoded = before.replace(ESCAPE, toCharacter);
    if (decoded === before) return false;
    if (texts.some((text) => decoded.includes(text))) return true;
  }
  return false;
}

/** As they are written, and as text that is compared with what is decoded. */
interface SecretForms {
  readonly longest: number;
  readonly forms: readonly Buffer[];
  readonly texts: readonly string[];
}

/** By list: most are searched for in many texts. */
const compiled = new WeakMap<readonly Buffer[], SecretForms>();

function compileForms(secrets: readonly Buffer[]): SecretForms {
  const known = compiled.get(secrets);
  if (known !== undefined) return known;
  const parts = secrets.map((secret) => secret.subarray(0, MAX_SEARCHED_LENGTH));
  const forms = parts.flatMap(toSpaceForms);
  const longest = parts.reduce((most, { length }) => Math.max(most, length), 0);
  const made = { longest, forms, texts: forms.flatMap(toForms) };
  compiled.set(secrets, made);
  return made;
}

/** A form writes a space as a plus sign. */
function toSpaceForms(secret: Buffer): Buffer[] {
  return secret.includes(' ') ? [secret, Buffer.from(secret.toString('latin1').replaceAll(' ', '+'), 'latin1')] : [secret];
}

/** A secret may contain what looks like an escape, which is decoded with the real ones. */
function toForms(secret: Buffer): string[] {
  const text = secret.toString('latin1');
  const decoded = text.replace(ESCAPE, toCharacter);
  return decoded === text || decoded.length < MIN_DECODED_LENGTH ? [text] : [text, decoded];
}

/** As bytes of UTF-8, each of which is a character of Latin-1. */
function toCharacter(_: string, units: string | undefined, character: string | undefined, hex: string | undefined): string {
  if (units !== undefined) return Buffer.from(toUnits(units)).toString('latin1');
  return character ?? String.fromCharCode(Number.parseInt(hex ?? '', 16));
}

function toUnits(escapes: string): string {
  let text = '';
  for (let at = 0; at < escapes.length; at += UNIT_LENGTH)
    text += String.fromCharCode(Number.parseInt(escapes.slice(at + 2, at + UNIT_LENGTH), 16));
  return text;
}
