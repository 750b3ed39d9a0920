/** Splits a command line into words like bash, without running any of it (docs/adr/0015-small-parsers.md). Text is latin1: words are bytes. */
import { usageError } from '../../core/errors.ts';

/** Text that a shell would expand: a variable, a parameter, arithmetic, a command. Any other `$` is a dollar sign. */
const EXPANSION = /^(?:\$[A-Za-z0-9_{([@*#?$!-]|`)/;

/** The words of the first command. Throws a usage error for an expansion, as its value is not known here. */
export function toWords(text: string): string[] {
  const words: string[] = [];
  let word: string | undefined;
  const end = (): void => {
    if (word !== undefined) words.push(word);
    word = undefined;
  };
  for (let at = 0; at < text.length; ) {
    // Not \s: in latin1 text that would find half of a UTF-8 character.
    if (/[ \t\r\n]/.test(text[at] as string)) {
      end();
      if (text[at] === '\n' && words.length > 0) break;
      at++;
      continue;
    }
    if (text[at] === '#' && word === undefined) {
      at = findLineEnd(text, at);
      continue;
    }
    const piece = readPiece(text, at);
    if (piece === undefined) break;
    if (!piece.isContinuation) word = (word ?? '') + piece.text;
    at = piece.end;
  }
  end();
  return words;
}

/** A comment begins where a word would. */
function findLineEnd(text: string, at: number): number {
  const end = text.indexOf('\n', at);
  return end === -1 ? text.length : end;
}

interface WordPiece {
  readonly text: string;
  readonly end: number;
  readonly isContinuation?: boolean;
}

/** Undefined where the command ends. */
function readPiece(text: string, at: number): WordPiece | undefined {
  const rest = text.slice(at, at + 2);
  if (rest.startsWith("'")) return readSingle(text, at);
  if (rest === "$'") return readAnsi(text, at + 2);
  // Text that bash would look up in a catalogue of translations; without one it is the text itself.
  if (rest === '$"') return readDouble(text, at + 2);
  if (rest.startsWith('"')) return readDouble(text, at + 1);
  if (rest.startsWith('\\')) return readEscape(text, at);
  if (/[|;&<>]/.test(rest[0] ?? '')) return undefined;
  if (EXPANSION.test(rest)) throw unknown(rest);
  return { text: rest[0] ?? '', end: at + 1 };
}

function unknown(what: string): Error {
  return usageError(`the command line has ${what[0]}…, which only a shell can look up: put the value there`);
}

function readSingle(text: string, at: number): WordPiece {
  const end = text.indexOf("'", at + 1);
  if (end === -1) throw usageError("the command line has a ' without its end");
  return { text: text.slice(at + 1, end), end: end + 1 };
}

function readEscape(text: string, at: number): WordPiece {
  const line = /^\\\r?\n/.exec(text.slice(at, at + 3));
  if (line !== null) return { text: '', end: at + line[0].length, isContinuation: true };
  return { text: text[at + 1] ?? '\\', end: at + 2 };
}

function readDouble(text: string, start: number): WordPiece {
  let value = '';
  for (let at = start; at < text.length; at++) {
    const character = text[at] as string;
    if (character === '"') return { text: value, end: at + 1 };
    if (EXPANSION.test(text.slice(at, at + 2))) throw unknown(character);
    if (character === '\\') value += toEscaped(text[++at] ?? '');
    else value += character;
  }
  throw usageError('the command line has a " without its end');
}

/** Within double quotes, a backslash before most characters is a normal character. */
function toEscaped(next: string): string {
  if (next === '\n') return '';
  return '$`"\\'.includes(next) ? next : `\\${next}`;
}

const ANSI: Readonly<Record<string, string>> = {
  a: '\x07',
  b: '\b',
  e: '\x1b',
  E: '\x1b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
};
const NUMBER = /^(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3}))/;
const HIGH_SURROGATE = /^d[89ab][0-9a-f]{2}$/i;

/** $'…' (bash, ANSI-C quoting), as browsers write bodies in "Copy as cURL". */
function readAnsi(text: string, start: number): WordPiece {
  let value = '';
  for (let at = start; at < text.length; ) {
    const character = text[at] as string;
    if (character === "'") return { text: value, end: at + 1 };
    if (character !== '\\') {
      value += character;
      at++;
      continue;
    }
    const [read, length] = readAnsiEscape(text.slice(at + 1, at + 13));
    value += read;
    at += 1 + length;
  }
  throw usageError("the command line has a $' without its end");
}

function readAnsiEscape(rest: string): [text: string, length: number] {
  const match = NUMBER.exec(rest);
  if (match === null) {
    const letter = rest[0] ?? '';
    if (letter === 'c' && rest.length > 1) return [String.fromCharCode(rest.charCodeAt(1) & 0x1f), 2];
    return [ANSI[letter] ?? (/[\\'"?]/.test(letter) ? letter : `\\${letter}`), 1];
  }
  const [all, byte, unit, point, octal] = match;
  if (byte !== undefined) return [String.fromCharCode(Number.parseInt(byte, 16)), all.length];
  if (octal !== undefined) return [String.fromCharCode(Number.parseInt(octal, 8) & 0xff), all.length];
  // Chromium writes UTF-16: a character beyond the basic plane comes as two escapes.
  const low = /^\\u(d[c-f][0-9a-f]{2})/i.exec(rest.slice(all.length))?.[1];
  if (unit !== undefined && HIGH_SURROGATE.test(unit) && low !== undefined)
    return [toUtf8(String.fromCharCode(Number.parseInt(unit, 16), Number.parseInt(low, 16))), all.length + 6];
  const code = Number.parseInt(unit ?? point ?? '0', 16);
  return [toUtf8(code > 0x10ffff ? '\ufffd' : String.fromCodePoint(code)), all.length];
}

/** The bytes of UTF-8, as latin1 text. */
function toUtf8(text: string): string {
  return Buffer.from(text).toString('latin1');
}
