/** The notation of durations, sizes, addresses and other scalar values in the config. */
import { isIP, isIPv4 } from 'node:net';
import * as z from 'zod';
import type { Bytes } from '../../core/bytes.ts';
import { DURATION_UNITS, type EpochMilliseconds, type Milliseconds, parseDuration } from '../../core/clock.ts';
import { isIpRange, isNat64Prefix } from '../../core/ip-address.ts';
import { type JsonPath, parseJsonPath } from '../../core/json-path.ts';
import { HOST_NAME, type ListenAddress, parseListenAddress } from '../../core/listen-address.ts';

/** Names of keys and user sources, which become metric labels and header values. */
export const NAME = /^[A-Za-z0-9._-]{1,64}$/;
/** The name of an environment variable. */
export const ENV_NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
export const envName = z.string().regex(ENV_NAME, 'the name of an environment variable consists of letters, digits and _');
export const filePath = z.string().min(1, 'a file path cannot be empty');
/** A maximum number of things. */
export const count = z.int().min(1).max(1_000_000);

/** An address to connect to; IPv6 hosts are without brackets. */
export interface SocketAddress {
  readonly host: string;
  readonly port: number;
}

const SIZE = /^(\d{1,12})(k|M|G|Ki|Mi|Gi)?$/;
const SIZE_UNITS: Readonly<Record<string, number>> = { '': 1, k: 1e3, M: 1e6, G: 1e9, Ki: 1024, Mi: 1024 ** 2, Gi: 1024 ** 3 };
const TIMESTAMP = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})$/;
const MAX_PORT = 65_535;

/** Parses text into a value, or reports what is wrong with it. */
type Parse<T> = (text: string) => T | { readonly problem: string };

function isProblem(value: unknown): value is { readonly problem: string } {
  return typeof value === 'object' && value !== null && 'problem' in value;
}

/** A string that is parsed into a value. Editors and type errors show `example`. */
export function scalar<T>(parse: Parse<T>, example: string) {
  return z
    .string({ error: () => `expected a string such as ${example}` })
    .meta({ examples: [example] })
    .transform((text, context): T => {
      const value = parse(text);
      if (!isProblem(value)) return value;
      context.addIssue({ code: 'custom', message: value.problem });
      return z.NEVER;
    });
}

/** `500ms`, `15s`, `5m`, `1h`, `3d` → milliseconds. */
export function duration() {
  return scalar<Milliseconds>(parseDuration, '15s');
}

/** The timers of libraries fire at once for more than 24 days, and some wait for twice the time that is configured. */
const MAX_LIMIT: Milliseconds = 12 * 86_400_000;

/** A duration that cannot be zero: the maximum time for something that takes time. */
export function timeLimit(min: Milliseconds = 0, max: Milliseconds = MAX_LIMIT) {
  return scalar<Milliseconds>((text) => {
    const parsed = parseDuration(text);
    if (typeof parsed === 'number' && parsed > 0 && parsed < min)
      return { problem: `${text} is too short; write at least ${formatDuration(min)}` };
    if (typeof parsed === 'number' && parsed > max)
      return { problem: `${text} is too long; write at most ${formatDuration(max)}` };
    return parsed === 0
      ? { problem: `${text} allows no time at all, and no value means "no limit"; write for example 15s` }
      : parsed;
  }, '15s');
}

/** `512`, `16Ki`, `1Mi`, `1M` → bytes. With other limits, no sender could keep within them. */
export function size({ min = 0, max = Number.POSITIVE_INFINITY }: { readonly min?: Bytes; readonly max?: Bytes } = {}) {
  return z
    .union([z.string(), z.int().nonnegative()], { error: () => 'expected a size such as 1Mi' })
    .meta({ examples: ['1Mi'] })
    .transform((value, context): Bytes => {
      const match = SIZE.exec(String(value));
      const bytes = match === null ? 0 : Number(match[1]) * (SIZE_UNITS[match[2] ?? ''] ?? 0);
      if (match !== null && bytes >= min && bytes <= max) return bytes;
      if (match !== null) {
        const message =
          bytes < min ? `${value} is too small; write at least ${min}` : `${value} is too large; write at most ${max}`;
        context.addIssue({ code: 'custom', message: `${message}, or no request could pass` });
        return z.NEVER;
      }
      context.addIssue({
        code: 'custom',
        message: `"${value}" is not a size; write a number of bytes, or a number with the unit k, M, G, Ki, Mi or Gi, for example 1Mi`,
      });
      return z.NEVER;
    });
}

/** An instant (RFC 3339) → epoch milliseconds. */
export function instant() {
  return scalar<EpochMilliseconds>((text) => {
    const at = TIMESTAMP.test(text) ? Date.parse(text) : Number.NaN;
    return Number.isNaN(at)
      ? { problem: `"${text}" is not a date and time; write it as in RFC 3339, for example 2026-12-31T00:00:00Z` }
      : at;
  }, '2026-12-31T00:00:00Z');
}

/** A path into a JSON body. */
export function jsonPath() {
  return scalar<JsonPath>(parseJsonPath, '$.data.id');
}

/** `host:port`, `[::1]:8080`, `10.0.0.7,fd00::7:8080`, `:8080` (all addresses). */
export function listenAddress() {
  return scalar<ListenAddress>(parseListenAddress, '127.0.0.1:8080');
}

/** `host:port` of a server to connect to, so port 0 is rejected. */
export function nodeAddress() {
  return scalar<SocketAddress>((text) => {
    const address = parseAddress(text);
    return 'port' in address && address.port === 0 ? { problem: 'port 0 is not a valid port to connect to' } : address;
  }, '127.0.0.1:6379');
}

function parseAddress(text: string): SocketAddress | { problem: string } {
  const match = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text);
  const host = match?.[1] ?? match?.[2] ?? '';
  const port = Number(match?.[3]);
  if (match === null)
    return { problem: `"${text}" is not an address; write host:port, for example 127.0.0.1:8080 or [::1]:8080` };
  if (port > MAX_PORT) return { problem: `port ${port} is above ${MAX_PORT}` };
  const isValid = match[1] === undefined ? isIPv4(host) || HOST_NAME.test(host) : isIP(host) === 6;
  return isValid ? { host, port } : { problem: `"${host}" is not a host name or IP address` };
}

/** `http://host:port` of the app. */
export function upstream() {
  return scalar<SocketAddress>(parseUpstream, 'http://127.0.0.1:3000');
}

/** `localhost:3000` and `127.0.0.1:3000/` are not valid upstream URLs, but their intent is clear. */
function suggestUpstream(text: string): string {
  const address = text.replace(/^[a-z]{1,16}:\/\//i, '').replace(/\/$/, '');
  const suggestion = `http://${address.startsWith(':') ? `127.0.0.1${address}` : address}`;
  const isValid = suggestion !== text && !('problem' in parseUpstream(suggestion));
  return isValid ? `. Did you mean "${suggestion}"?` : '; write http://host:port, for example http://127.0.0.1:3000';
}

function parseUpstream(text: string): SocketAddress | { problem: string } {
  const isUrl = URL.canParse(text) && text.includes('://');
  if (!isUrl) return { problem: `"${text}" is not a URL${suggestUpstream(text)}` };
  const url = new URL(text);
  if (url.protocol !== 'http:')
    return {
      problem: `an upstream must use http, not ${url.protocol.slice(0, -1)}: the app must be on this machine or in this pod`,
    };
  if (url.username !== '' || url.password !== '') return { problem: 'an upstream must not contain a user or password' };
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '' || text.endsWith('/')) {
    return {
      problem: `an upstream must be an origin without a path: the path of the request is forwarded unchanged; write "${url.origin}"`,
    };
  }
  const host = url.hostname.startsWith('[') ? url.hostname.slice(1, -1) : url.hostname;
  const port = url.port === '' ? 80 : Number(url.port);
  return port === 0 ? { problem: 'port 0 is not a valid port to connect to' } : { host, port };
}

/** The URL that senders use for the gate: scheme and host, and the path prefix that a proxy strips. */
export function publicUrl() {
  return scalar<string>((text) => {
    const example = 'write for example https://hooks.example.com';
    if (!URL.canParse(text)) return { problem: `"${text}" is not a URL; ${example}` };
    const url = new URL(text);
    if (!['http:', 'https:'].includes(url.protocol)) return { problem: `"${text}" is not an http or https URL; ${example}` };
    if (url.username !== '' || url.password !== '')
      return { problem: `the URL has a user or a password, which is a secret: configure both as urlCredentials, and ${example}` };
    if (url.search !== '' || url.hash !== '' || text.endsWith('/'))
      return { problem: `"${text}" must consist of scheme, host and path only; ${example}, without a trailing slash` };
    return text;
  }, 'https://hooks.example.com');
}

/** A CIDR range or a single address. */
export function addressRange() {
  return z
    .string()
    .refine(isIpRange, {
      error: (issue) => `"${issue.input}" is not an address range; write for example 10.0.0.0/8 or 192.0.2.1`,
    })
    .meta({ examples: ['10.0.0.0/8'] });
}

/** IPv6 prefixes of the network's NAT64 (RFC 6052). */
export const nat64Prefixes = z
  .array(
    z
      .string()
      .refine(isNat64Prefix, {
        error: (issue) =>
          `"${issue.input}" is not a NAT64 prefix; write an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits, for example 64:ff9b::/96`,
      })
      .meta({ examples: ['64:ff9b::/96'] }),
  )
  .default([])
  .describe(
    'IPv6 prefixes that the NAT64 of the network translates to IPv4 (RFC 6052). Addresses in them are checked by the IPv4 address that they contain.',
  );

/** The shortest text that `duration()` parses. */
export function formatDuration(duration: Milliseconds): string {
  const units = Object.entries(DURATION_UNITS).reverse();
  const [unit, size] = units.find(([, each]) => duration > 0 && duration % each === 0) ?? ['ms', 1];
  return duration === 0 ? '0s' : `${duration / size}${unit}`;
}
