/** The URLs that a sender may have signed instead of the one that the gate reconstructs. */
import type { HeaderFields } from '../../core/headers.ts';
import type { RejectedRequest } from './analysis.ts';

/** One URL; `text` shows at most its origin, because paths and queries can contain tokens. */
export interface UrlForm {
  readonly text: string;
  readonly url: string;
}

const DEFAULT_PORTS: Readonly<Record<string, string>> = { 'http:': '80', 'https:': '443' };
/** Hosts that are safe to log: untrusted clients write them. */
const HOST = /^[A-Za-z0-9.-]{1,253}(?::[0-9]{1,5})?$|^\[[0-9A-Fa-f:.]{2,45}\](?::[0-9]{1,5})?$/;
const MAX_HOSTS = 4;

/** The URL that the gate reconstructs comes first. */
export function toUrlForms(publicUrl: string, { target, headers }: RejectedRequest): readonly UrlForm[] {
  const forms: UrlForm[] = [];
  const hosts = toHosts(headers);
  const base = publicUrl === '' ? `https://${hosts[0] ?? 'localhost'}` : publicUrl;
  const add = (text: string, url: string): void => {
    if (forms.every((form) => form.url !== url)) forms.push({ text, url });
  };
  add('the URL that sidegate reconstructs', base + target);
  const { protocol, host, hostname, port, pathname } = new URL(base);
  const other = protocol === 'https:' ? 'http:' : 'https:';
  const prefix = pathname === '/' ? '' : pathname;
  add(`a URL with ${other}//`, `${other}//${host}${prefix}${target}`);
  if (port === '')
    add(
      `a URL with :${DEFAULT_PORTS[protocol]} after the host`,
      `${protocol}//${host}:${DEFAULT_PORTS[protocol]}${prefix}${target}`,
    );
  else add('a URL without the port', `${protocol}//${hostname}${prefix}${target}`);
  if (prefix !== '') add('a URL without the path of publicUrl', `${protocol}//${host}${target}`);
  addPaths(base, target, add);
  for (const seen of hosts)
    for (const scheme of [protocol, other]) {
      add(`a URL that begins with ${scheme}//${seen}`, `${scheme}//${seen}${target}`);
      if (prefix !== '') add(`a URL that begins with ${scheme}//${seen}${prefix}`, `${scheme}//${seen}${prefix}${target}`);
    }
  return forms;
}

function addPaths(base: string, target: string, add: (text: string, url: string) => void): void {
  const mark = target.indexOf('?');
  const path = mark === -1 ? target : target.slice(0, mark);
  const query = mark === -1 ? '' : target.slice(mark);
  if (query !== '') add('a URL without the query', base + path);
  if (path.endsWith('/')) add('a URL without the trailing slash of the path', base + path.slice(0, -1) + query);
  else add('a URL with a trailing slash after the path', `${base}${path}/${query}`);
  if (path.includes('%')) add('a URL with a decoded path', base + decode(path) + query);
  add('a URL without a path', base + query);
}

function decode(path: string): string {
  try {
    // The signed text is latin1 here, like header fields: one character per byte.
    return Buffer.from(decodeURIComponent(path)).toString('latin1');
  } catch {
    return path;
  }
}

/** The hosts that the request names. */
function toHosts(headers: HeaderFields): string[] {
  const forwarded = headers
    .all('forwarded')
    .flatMap((line) => [...line.matchAll(/host="?([^;,"\s]+)/gi)].map(([, host]) => host ?? ''));
  const listed = headers.all('x-forwarded-host').flatMap((line) => line.split(',').map((host) => host.trim()));
  const hosts = [...listed, ...forwarded, headers.get('host') ?? ''].filter(
    (host) => HOST.test(host) && URL.canParse(`https://${host}`),
  );
  return [...new Set(hosts)].slice(0, MAX_HOSTS);
}
