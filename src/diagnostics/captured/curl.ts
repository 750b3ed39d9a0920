/** Reads a command line of curl into the request that it would send; nothing is run. */
import { usageError } from '../../core/errors.ts';
import { type Captured, type ReadNamedFile, splitUrl, toField } from './captured.ts';

/** Those that take a value; what does not change the request is read and forgotten. */
const WITH_VALUE: Readonly<Record<string, string>> = {
  '-X': 'request',
  '-H': 'header',
  '-d': 'data',
  '-A': 'user-agent',
  '-e': 'referer',
  '-b': 'cookie',
  '-u': 'user',
  '-F': 'form',
  '-T': 'upload-file',
  '-o': 'output',
  '-m': 'max-time',
  '-x': 'proxy',
  '-w': 'write-out',
  '-E': 'cert',
  '-D': 'dump-header',
  '-c': 'cookie-jar',
};
const LONG_WITH_VALUE: ReadonlySet<string> = new Set([
  ...Object.values(WITH_VALUE),
  ...['url', 'data-raw', 'data-binary', 'data-ascii', 'data-urlencode', 'json', 'oauth2-bearer', 'resolve', 'connect-to'],
  ...['connect-timeout', 'cacert', 'capath', 'key', 'retry', 'retry-delay', 'interface', 'proxy-user', 'tlsv', 'ciphers'],
  ...['max-redirs', 'limit-rate', 'trace', 'trace-ascii', 'stderr', 'unix-socket', 'aws-sigv4', 'dns-servers'],
]);

interface Option {
  readonly name: string;
  readonly value: string;
}

/** One request. */
export function readCurl(bytes: Buffer, readFile: ReadNamedFile): Captured {
  const words = toWords(bytes.toString('latin1'));
  if (words[0] === '$') words.shift();
  if (!/(?:^|\/)curl(?:\.exe)?$/.test(words[0] ?? '')) throw usageError('the command line does not begin with curl');
  const options = toOptions(words.slice(1));
  const has = (name: string): boolean => options.some((option) => option.name === name);
  if (has('form')) throw usageError('curl creates a new boundary for -F (multipart) in each run: capture the request itself');
  if (has('upload-file')) throw usageError('-T is not read: give the content by --data-binary @FILE');
  const { origin, target } = toUrl(options);
  const data = options.flatMap((option) => toData(option, readFile) ?? []);
  // -G moves the data to the query.
  const content = has('get') ? [] : data;
  const query = has('get') && data.length > 0 ? `${target.includes('?') ? '&' : '?'}${joinData(data)}` : '';
  const usual = content.length > 0 ? 'POST' : has('head') ? 'HEAD' : 'GET';
  return {
    method: options.findLast(({ name }) => name === 'request')?.value ?? usual,
    origin,
    target: target + query,
    headers: toHeaders(options, origin ?? '', content.length > 0),
    body: Buffer.from(joinData(content), 'latin1'),
    notes: [],
  };
}

/** The first that looks like one: an option that is not known here may leave its value behind. */
function toUrl(options: readonly Option[]): Pick<Captured, 'origin' | 'target'> {
  const urls = options.filter(({ name }) => name === 'url').map(({ value }) => value);
  const url = urls.find((value) => /^https?:\/\//i.test(value)) ?? urls[0];
  if (url === undefined || url === '') throw usageError('the command line of curl has no URL');
  return splitUrl(/^https?:\/\//i.test(url) ? url : `http://${url}`);
}

/** `--json` does not join by `&`. */
function joinData(data: readonly Option[]): string {
  return data.map(({ name, value }, i) => (i === 0 || name === 'json' ? value : `&${value}`)).join('');
}

function toOptions(words: readonly string[]): Option[] {
  const options: Option[] = [];
  for (let i = 0; i < words.length; i++) {
    const word = words[i] as string;
    const take = (name: string, value?: string): void => {
      if (value === undefined) i++;
      options.push({ name, value: value ?? words[i] ?? '' });
    };
    if (!word.startsWith('-') || word === '-') options.push({ name: 'url', value: word });
    else if (!word.startsWith('--')) readShort(word, take, options);
    else if (LONG_WITH_VALUE.has(word.slice(2))) take(word.slice(2));
    else options.push({ name: word.slice(2), value: '' });
  }
  return options;
}

/** `-XPOST`, `-sSX POST`: letters without a value may precede one with a value. */
function readShort(word: string, take: (name: string, value?: string) => void, options: Option[]): void {
  for (let at = 1; at < word.length; at++) {
    const name = WITH_VALUE[`-${word[at]}`];
    if (name !== undefined) return take(name, word.length > at + 1 ? word.slice(at + 1) : undefined);
    if (word[at] === 'G') options.push({ name: 'get', value: '' });
    if (word[at] === 'I') options.push({ name: 'head', value: '' });
  }
}

/** The part of the body that an option adds; undefined for other options. */
function toData({ name, value }: Option, readFile: ReadNamedFile): Option | undefined {
  switch (name) {
    case 'data-raw':
      return { name, value };
    case 'data':
    case 'data-ascii':
      // curl removes line endings from files only, not from values on the command line.
      return { name, value: value.startsWith('@') ? readText(value, readFile).replace(/[\r\n\0]/g, '') : value };
    case 'data-binary':
    case 'json':
      return { name, value: value.startsWith('@') ? readText(value, readFile) : value };
    case 'data-urlencode':
      return { name, value: toUrlEncoded(value, readFile) };
    default:
      return undefined;
  }
}

function readText(value: string, readFile: ReadNamedFile): string {
  const file = Buffer.from(value.slice(1), 'latin1').toString('utf8');
  if (file === '-') throw usageError('the command line reads the content from standard input: put it into a file');
  return readFile(file).toString('latin1');
}

/** `content`, `=content`, `name=content`, `@file`, `name@file`. */
function toUrlEncoded(value: string, readFile: ReadNamedFile): string {
  const [, name = '', mark = '', rest = ''] = /^([^=@]*)([=@])([^]*)$/.exec(value) ?? ['', '', '', value];
  const text = mark === '@' ? readText(`@${rest}`, readFile) : rest;
  const toEscape = (character: string): string => `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`;
  return (name === '' ? '' : `${name}=`) + text.replace(/[^A-Za-z0-9._~-]/g, toEscape).replaceAll('%20', '+');
}

/** The headers that curl adds by default. */
function toHeaders(options: readonly Option[], origin: string, hasData: boolean): string[] {
  const given = options.filter(({ name }) => name === 'header').map(({ value }) => value);
  const headers = given
    .filter((line) => !/^[^:;]+:\s*$/.test(line))
    .flatMap((line) => toField(line.replace(/^([^:;]+);$/, '$1:')));
  const isNamed = (name: string): boolean => given.some((line) => line.toLowerCase().replace(/[:;][^]*$/, '') === name);
  const add = (name: string, value: string | undefined): void => {
    if (value !== undefined && !isNamed(name.toLowerCase())) headers.push(name, value);
  };
  const last = (name: string): string | undefined => options.findLast((option) => option.name === name)?.value;
  const user = last('user');
  const isJson = options.some(({ name }) => name === 'json');
  add('Host', origin.replace(/^https?:\/\//i, ''));
  add('User-Agent', last('user-agent'));
  add('Referer', last('referer'));
  add('Cookie', last('cookie'));
  add('Authorization', user === undefined ? undefined : `Basic ${Buffer.from(user, 'latin1').toString('base64')}`);
  add('Authorization', last('oauth2-bearer') === undefined ? undefined : `Bearer ${last('oauth2-bearer')}`);
  const form = hasData ? 'application/x-www-form-urlencoded' : undefined;
  add('Content-Type', isJson ? 'application/json' : form);
  return headers;
}

// Splits a command line into words like bash, without running any of it (docs/adr/0015-small-parsers.md). Text is latin1: words are bytes.

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
