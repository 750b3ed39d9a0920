/** Reads a command line of curl into the request that it would send; nothing is run. */
import { usageError } from '../../core/errors.ts';
import { type Captured, type ReadNamedFile, splitUrl } from './captured.ts';
import { toField } from './http-message.ts';
import { toWords } from './shell-words.ts';

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
