/** The URLs that a sender may have signed instead of the one that the gate reconstructs: what proxies and configs change in them. */
import type { HeaderFields } from '../../core/head.ts';
import type { AnalysisInput, RejectedRequest } from './analysis.ts';

/** One URL; `text` shows at most its origin, because paths and queries can contain tokens. */
export interface UrlForm {
  readonly text: string;
  readonly url: string;
  /** Undefined for the fix of the cause. */
  readonly fix?: string;
}

interface OriginForm {
  readonly text: string;
  readonly fix: string;
  /** Scheme, credentials and host. */
  readonly origin: string;
}

const DEFAULT_PORTS: Readonly<Record<string, string>> = { 'http:': '80', 'https:': '443' };
/** Hosts that are safe to log: untrusted clients write them. */
const HOST = /^[A-Za-z0-9.-]{1,253}(?::[0-9]{1,5})?$|^\[[0-9A-Fa-f:.]{2,45}\](?::[0-9]{1,5})?$/;
const MAX_HOSTS = 4;
/** Bounds the analysis: each is a candidate, with each key, and pairs are built only up to it. Single changes come first. */
const MAX_FORMS = 400;
/** Pairs of changes are tried with the likeliest origins only. */
const MAX_PAIRED_ORIGINS = 8;
const MAX_CREDENTIALS_LENGTH = 256;
/** User and password with the `@` after them. */
const CREDENTIALS = /^https?:\/\/([^/?#@]*@)/i;

/** The parts of an analysis that determine the URL. */
type UrlInput = Pick<AnalysisInput, 'request' | 'publicUrl'>;

/**
 * The URL that the gate reconstructs comes first. Each step builds at most one URL, and yields undefined if it was built before, so that
 * the caller can let other work run: untrusted clients determine how long and how many the URLs are.
 */
export function* toUrlForms(input: UrlInput): Generator<UrlForm | undefined> {
  const seen = new Set<string>();
  for (const form of toAllForms(input)) {
    if (form === undefined || seen.has(form.url)) {
      yield undefined;
      continue;
    }
    seen.add(form.url);
    yield form;
    if (seen.size === MAX_FORMS) return;
  }
}

/** Some URLs repeat; undefined in place of a path with query that repeats. */
function* toAllForms({ request, publicUrl }: UrlInput): Generator<UrlForm | undefined> {
  const hosts = toHosts(request.headers);
  const base = new URL(publicUrl === '' ? `https://${hosts[0] ?? 'localhost'}` : publicUrl);
  const prefix = base.pathname === '/' ? '' : base.pathname;
  const [first, ...others] = toOriginForms({ request, publicUrl }, base, hosts);
  // As the config has it: `new URL` removes a default port.
  const url = (publicUrl === '' ? base.origin : publicUrl) + request.target;
  yield { text: 'the URL that sidegate reconstructs', url };
  const own = prefix + request.target;
  for (const { text, fix, origin } of others) yield { text, fix, url: origin + own };
  const targets = new Map<string, TargetForm>();
  for (const form of toTargetForms(prefix, request, `${base.protocol}//${base.host}`)) {
    const target = form.toTarget();
    const isNew = target !== own && !targets.has(target);
    if (isNew) targets.set(target, form);
    yield isNew ? { text: form.text, fix: form.fix, url: (first?.origin ?? base.origin) + target } : undefined;
  }
  for (const one of others.slice(0, MAX_PAIRED_ORIGINS))
    for (const [target, other] of targets)
      yield {
        text: `${one.text}, and ${other.text.replace(/^a URL /, '')}`,
        fix: `${one.fix}; ${other.fix}`,
        url: one.origin + target,
      };
}

/** That of the config first. */
function toOriginForms({ request, publicUrl }: UrlInput, base: URL, hosts: readonly string[]): readonly OriginForm[] {
  const { protocol, host, hostname, port } = base;
  const other = protocol === 'https:' ? 'http:' : 'https:';
  const [, configured = ''] = CREDENTIALS.exec(publicUrl) ?? [];
  const forms: OriginForm[] = [];
  const add = (text: string, scheme: string, authority: string, credentials = configured): void => {
    const fix = `set publicUrl to begin with ${scheme}//${authority}`;
    forms.push({ text, fix, origin: `${scheme}//${credentials}${authority}` });
  };
  add('', protocol, host);
  for (const { text, fix, credentials } of toCredentials(request.headers, configured))
    forms.push({ text, fix, origin: `${protocol}//${credentials}${host}` });
  add(`a URL with ${other}//`, other, host);
  if (port === '') add(`a URL with :${DEFAULT_PORTS[protocol]} after the host`, protocol, `${host}:${DEFAULT_PORTS[protocol]}`);
  else add('a URL without the port', protocol, hostname);
  if (protocol === 'http:' && port !== '') add('a URL with https:// and without the port', other, hostname);
  for (const seen of hosts)
    for (const scheme of [protocol, other]) {
      add(`a URL that begins with ${scheme}//${seen}`, scheme, seen);
      const name = seen.replace(/:\d+$/, '');
      if (name !== seen) add(`a URL that begins with ${scheme}//${name}`, scheme, name);
    }
  return forms;
}

interface UrlCredentials {
  readonly text: string;
  readonly fix: string;
  /** With `@`, or empty. */
  readonly credentials: string;
}

/** User and password that the URL at the sender may have: clients send them as HTTP Basic. Never in a text. */
function toCredentials(headers: HeaderFields, configured: string): UrlCredentials[] {
  const [, encoded = ''] = /^basic ([A-Za-z0-9+/=]+)$/i.exec(headers.get('authorization') ?? '') ?? [];
  const sent = Buffer.from(encoded, 'base64').toString('latin1');
  const colon = sent.indexOf(':');
  const fix = 'configure them as urlCredentials: { file: PATH }, user:password as the URL at the sender has them';
  const without = { text: 'a URL without user and password', fix: 'remove urlCredentials', credentials: '' };
  const found = configured === '' ? [] : [without];
  if (colon === -1 || sent.length > MAX_CREDENTIALS_LENGTH) return found;
  const [user, password] = [sent.slice(0, colon), sent.slice(colon + 1)];
  const text = 'a URL with the user and password of the Authorization header';
  const spellings = [`${user}:${password}@`, `${encodeURIComponent(user)}:${encodeURIComponent(password)}@`, `${user}@`];
  return [...found, ...spellings.map((credentials) => ({ text, fix, credentials }))];
}

/** The hosts that the request names. */
function toHosts(headers: HeaderFields): string[] {
  const forwarded = headers
    .all('forwarded')
    .flatMap((line) => [...line.matchAll(/host="?([^;,"\s]+)/gi)].map(([, host]) => host ?? ''));
  const names = ['x-forwarded-host', 'x-original-host', 'x-forwarded-server'];
  const listed = names.flatMap((name) => headers.all(name)).flatMap((line) => line.split(',').map((host) => host.trim()));
  const hosts = [...listed, ...forwarded, headers.get('host') ?? ''].filter(
    (host) => HOST.test(host) && URL.canParse(`https://${host}`),
  );
  return [...new Set(hosts)].slice(0, MAX_HOSTS);
}

// The paths and queries that a sender may have signed instead of those that arrived: prefixes, slashes, order and encoding.

/** One path with its query; `text` shows nothing of them that a request contains. */
interface TargetForm {
  readonly text: string;
  readonly fix: string;
  /** Builds path and query. Forms of long targets take time, so the caller lets other work run between them. */
  readonly toTarget: () => string;
}

type Add = (text: string, fix: string, toTarget: () => string) => void;

/** Headers in which proxies keep the path and query that they changed. */
const ORIGINAL_TARGETS = [
  'x-original-uri',
  'x-original-url',
  'x-forwarded-uri',
  'x-rewrite-url',
  'x-envoy-original-path',
  'x-forwarded-path',
  'x-replaced-path',
];
/** Headers in which proxies name the prefix that they stripped. */
const STRIPPED_PREFIXES = ['x-forwarded-prefix', 'x-script-name', 'x-stripped-prefix'];
/** Prefixes that proxies often strip. */
const COMMON_PREFIXES =
  'api hooks hook webhooks webhook v1 v2 v3 api/v1 api/v2 api/hooks api/webhooks app apps gateway public external internal callback callbacks events integrations services service backend prod production live stage staging dev test default proxy billing payments'.split(
    ' ',
  );
const MAX_TARGET_LENGTH = 4_096;
/** In all of STRIPPED_PREFIXES: untrusted clients can write thousands. */
const MAX_PREFIXES = 4;
const MAX_SEGMENTS = 3;
/** All orders are tried up to this number of parameters: 24. */
const MAX_PERMUTED = 4;
const KEEP_PATH = 'make the proxy in front of sidegate forward the path as the sender wrote it';
const KEEP_QUERY = 'make the proxy in front of sidegate forward the query as the sender wrote it';

/** All forms but the one that the gate reconstructs, the likeliest first. `origin`: that of the config, without credentials. */
export function toTargetForms(prefix: string, { target, headers }: RejectedRequest, origin: string): readonly TargetForm[] {
  const forms: TargetForm[] = [];
  const add: Add = (text, fix, toTarget) => forms.push({ text, fix, toTarget });
  const mark = target.indexOf('?');
  const path = mark === -1 ? target : target.slice(0, mark);
  const query = mark === -1 ? '' : target.slice(mark);
  if (prefix !== '') add('a URL without the path of publicUrl', `set publicUrl to ${origin}`, () => target);
  addOriginals({ target, query, origin }, headers, add);
  const toQuery = (changed: string): string => (changed === '' ? '' : `?${changed}`);
  addQueries(query.slice(1), (text, fix, change) => add(text, fix, () => prefix + path + toQuery(change())));
  addPaths(path, (text, fix, change) => add(text, fix, () => prefix + change() + query));
  for (const [text, recode] of query === '' ? [] : RECODINGS)
    add(`a URL ${text}`, `${KEEP_PATH}, and the query`, () => `${prefix}${recode(path)}?${recode(query.slice(1))}`);
  addDropped(path, (text, fix, change) => add(text, fix, () => change() + query));
  for (const common of COMMON_PREFIXES)
    add(
      `a URL with the prefix /${common}, which a proxy strips`,
      `set publicUrl to ${origin}${prefix}/${common}`,
      () => `${prefix}/${common}${target}`,
    );
  return forms;
}

interface Received {
  readonly target: string;
  /** With its question mark. */
  readonly query: string;
  readonly origin: string;
}

/** From headers in which a proxy says what it changed. */
function addOriginals({ target, query, origin }: Received, headers: HeaderFields, add: Add): void {
  for (const name of ORIGINAL_TARGETS) {
    const value = headers.get(name) ?? '';
    if (!isTarget(value)) continue;
    const isPrefixed = value.endsWith(target);
    const fix = isPrefixed ? `append to publicUrl the prefix that the proxy strips (${name} has it): ${origin}/…` : KEEP_PATH;
    add(`a URL with the path in ${name}`, fix, () => value);
    if (!value.includes('?')) add(`a URL with the path in ${name}`, fix, () => value + query);
  }
  for (const [name, value] of toStrippedPrefixes(headers))
    add(`a URL with the prefix in ${name}`, `append to publicUrl the prefix in ${name}: ${origin}/…`, () => value + target);
}

/** The names of the headers with the prefixes. */
function toStrippedPrefixes(headers: HeaderFields): (readonly [name: string, prefix: string])[] {
  return STRIPPED_PREFIXES.flatMap((name) =>
    (headers.get(name) ?? '').split(',', MAX_PREFIXES).map((each) => [name, each.trim().replace(/\/$/, '')] as const),
  )
    .filter(([, prefix]) => isTarget(prefix))
    .slice(0, MAX_PREFIXES);
}

function isTarget(value: string): boolean {
  return value.startsWith('/') && value.length <= MAX_TARGET_LENGTH;
}

/** A proxy may have added the first segments. */
function addDropped(path: string, add: Add): void {
  let rest = path;
  for (let count = 1; count <= MAX_SEGMENTS; count++) {
    const end = rest.indexOf('/', 1);
    if (end === -1) return;
    const dropped = rest.slice(end);
    rest = dropped;
    const segments = count === 1 ? 'the first segment' : `the first ${count} segments`;
    const fix = `make the proxy in front of sidegate forward the path without the prefix that it adds`;
    add(`a URL without ${segments} of the path, which a proxy adds`, fix, () => dropped);
  }
}

function addPaths(path: string, add: Add): void {
  const slash = 'configure the same path at the sender and in match, and let no proxy add or remove the slash';
  if (path.endsWith('/')) add('a URL without the trailing slash of the path', slash, () => path.slice(0, -1));
  else add('a URL with a trailing slash after the path', slash, () => `${path}/`);
  for (const [text, recode] of RECODINGS) add(`a URL with a path ${text}`, KEEP_PATH, () => recode(path));
  if (path.includes('//')) add('a URL without the repeated slashes of the path', KEEP_PATH, () => path.replace(/\/{2,}/g, '/'));
  add('a URL without a path', 'set at the sender the URL that the route matches', () => '');
}

function addQueries(query: string, add: Add): void {
  if (query === '') return;
  add('a URL without the query', 'remove what adds the query between the sender and sidegate', () => '');
  const parameters = query.split('&');
  const sorted = [...parameters].sort().join('&');
  for (const order of toOrders(parameters))
    add('a URL with the parameters of the query in another order', KEEP_QUERY, () => order.join('&'));
  for (const [text, recode] of QUERY_RECODINGS) add(`a URL with a query ${text}`, KEEP_QUERY, () => recode(query));
  for (const [text, recode] of RECODINGS) add(`a URL with a sorted query ${text}`, KEEP_QUERY, () => recode(sorted));
  add('a URL without `=` after parameters without a value', KEEP_QUERY, () => query.replace(/=(?=&|$)/g, ''));
  add('a URL with `=` after parameters without a value', KEEP_QUERY, () =>
    parameters.map((each) => (each.includes('=') ? each : `${each}=`)).join('&'),
  );
  if (parameters.length > 1)
    for (let index = parameters.length - 1; index >= Math.max(0, parameters.length - MAX_PERMUTED); index--)
      add('a URL without one of the parameters of the query', KEEP_QUERY, () => parameters.toSpliced(index, 1).join('&'));
}

/** Sorted and reversed, and all orders of a few parameters. */
function toOrders(parameters: readonly string[]): string[][] {
  if (parameters.length < 2) return [];
  const sorted = [...parameters].sort();
  const orders = [sorted, sorted.toReversed(), parameters.toReversed()];
  return parameters.length > MAX_PERMUTED ? orders : [...orders, ...permute(parameters)];
}

function permute(items: readonly string[]): string[][] {
  if (items.length < 2) return [[...items]];
  return items.flatMap((item, index) => permute(items.toSpliced(index, 1)).map((rest) => [item, ...rest]));
}

/** Encodings that proxies and frameworks write instead of the one that they read. */
const RECODINGS: readonly (readonly [text: string, recode: (text: string) => string])[] = [
  ['with + in place of %20', (text) => text.replace(/%20/g, '+')],
  ['with %20 in place of +', (text) => text.replaceAll('+', '%20')],
  ['with upper-case percent-encoding', (text) => text.replace(/%[0-9a-f]{2}/gi, (octet) => octet.toUpperCase())],
  ['with lower-case percent-encoding', (text) => text.replace(/%[0-9a-f]{2}/gi, (octet) => octet.toLowerCase())],
  ['that is decoded', decode],
  ['that is decoded, with spaces in place of +', (text) => decode(text.replaceAll('+', ' '))],
  ['in which only the unreserved characters are decoded', decodeUnreserved],
  ['in which all reserved characters are encoded', (text) => encodeParts(text, /[^/&=]+/g, encodeURIComponent)],
  ['in which reserved characters are encoded as in forms', (text) => encodeParts(text, /[^/&=]+/g, encodeForm)],
  ['that is encoded once more', (text) => text.replaceAll('%', '%25')],
];

const QUERY_RECODINGS: typeof RECODINGS = [
  ...RECODINGS,
  ['in which slashes are encoded as well', (text) => encodeParts(text, /[^&=]+/g, encodeURIComponent)],
  ['in which slashes are encoded as well, as in forms', (text) => encodeParts(text, /[^&=]+/g, encodeForm)],
];

/** The signed text is latin1 here, like header fields: one character per byte. */
function decode(text: string): string {
  try {
    return Buffer.from(decodeURIComponent(text)).toString('latin1');
  } catch {
    return text;
  }
}

/** RFC 3986 §6.2.2.2. */
function decodeUnreserved(text: string): string {
  return text.replace(/%(?:2d|2e|5f|7e|3[0-9]|[46][1-9a-f]|[57][0-9a])/gi, (octet) =>
    String.fromCharCode(Number.parseInt(octet.slice(1), 16)),
  );
}

function encodeForm(text: string): string {
  return encodeURIComponent(text)
    .replace(/%20/g, '+')
    .replace(/[!'()~]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** Encodes the parts between the characters that separate segments and parameters. */
function encodeParts(text: string, parts: RegExp, encode: (part: string) => string): string {
  return text.replace(parts, (part) => {
    try {
      return encode(decodeURIComponent(part.replaceAll('+', ' ')));
    } catch {
      return part;
    }
  });
}
