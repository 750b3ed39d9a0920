/** The URLs that a sender may have signed instead of the one that the gate reconstructs: what proxies and configs change in them. */
import type { HeaderFields } from '../../core/headers.ts';
import type { AnalysisInput } from './analysis.ts';
import { type TargetForm, toTargetForms } from './target-forms.ts';

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
