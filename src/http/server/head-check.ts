/** Validates a request head before routing: framing, Host, size and target. A head that fails here is rejected on every route. */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { isProtectedField } from '../../core/field-policy.ts';
import { HeaderFields, isPlainOption, toFoldedName } from '../../core/headers.ts';
import { type Refusal, refuse } from '../../core/refusal.ts';
import { MAX_METHOD_LENGTH } from '../../core/request.ts';
import { parseTarget, type RequestTarget } from '../../core/target.ts';
import type { OnLimit } from './limits.ts';

/** A head of 16 KiB could have 8,000, which take milliseconds; clients send one or two, and name a few fields. */
const MAX_CONNECTION_OPTIONS = 64;
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** A request head, in any version of HTTP. */
export interface IncomingHead {
  readonly method: string;
  readonly url: string;
  readonly headers: HeaderFields;
  /** False for the versions that node:http accepts although HTTP/1 does not have them. */
  readonly hasValidVersion: boolean;
  /** HTTP/1.0. */
  readonly isOld: boolean;
  readonly socket: Socket;
}

/** The head of an HTTP/1 request. */
export function toIncomingHead(request: IncomingMessage): IncomingHead {
  return {
    method: request.method ?? '',
    url: request.url ?? '',
    headers: new HeaderFields(request.rawHeaders),
    hasValidVersion: request.httpVersion === '1.1' || request.httpVersion === '1.0',
    isOld: request.httpVersionMinor === 0,
    socket: request.socket,
  };
}

/** The limits of a head. */
interface HeadLimits {
  readonly maxHeaderFields: number;
  /** Bytes. */
  readonly maxTarget: number;
}

/** Registered names and addresses with an optional port; no user part (RFC 9110 §4.2.4, RFC 9112 §3.2). */
const HOST = /^(?:[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{0,5})?$/;

/** Parses the target, or returns why the request is rejected before routing. */
export function checkHead(head: IncomingHead, limits: HeadLimits, onLimit: OnLimit): RequestTarget | Refusal {
  const unsound = findUnsound(head, limits, onLimit);
  if (unsound !== undefined) return unsound;
  const target = parseTarget(head.url);
  return 'problem' in target ? refuse('malformed_request', 'path_ambiguous', { detail: target.problem, stage: 'route' }) : target;
}

/** Returns why the head is invalid, regardless of its target. */
export function findUnsound(head: IncomingHead, limits: HeadLimits, onLimit: OnLimit): Refusal | undefined {
  const { headers, url, method } = head;
  if (method.length > MAX_METHOD_LENGTH) return refuse('malformed_request', 'malformed', `a method of ${method.length} bytes`);
  if (headers.size > limits.maxHeaderFields) {
    onLimit('header_fields');
    return refuse('header_too_large', 'header_too_large', `${headers.size} header fields`);
  }
  if (url.length > limits.maxTarget) {
    onLimit('target');
    return refuse('target_too_long', 'target_too_long', `${url.length} bytes`);
  }
  // For HTTP/0.9, the request ends with its first line: a hop in front may take the rest for another request, or not pass it on.
  const framing = head.hasValidVersion ? findFramingProblem(head) : 'the version is not HTTP/1.0 or HTTP/1.1';
  return framing === undefined ? undefined : refuse('malformed_request', 'framing', framing);
}

/** Whether the text is a host with an optional port, and nothing else. */
export function isAuthority(text: string): boolean {
  return HOST.test(text);
}

/** Finds a field that makes the end or the recipient of the request uncertain. */
function findFramingProblem({ headers, isOld }: IncomingHead): string | undefined {
  // Node only ensures that HTTP/1.1 has some Host; RFC 9112 §3.2 requires exactly one valid Host.
  const hosts = headers.count('host');
  if (hosts > 1) return 'repeated Host';
  if (hosts === 0 && !isOld) return 'no Host';
  if (hosts === 1 && !isAuthority(headers.get('host') as string)) return 'Host is malformed';
  const codings = headers.count('transfer-encoding');
  if (codings > 0) {
    // RFC 9112 §6.1: invalid framing; an HTTP/1.0 hop in front may have parsed another request from the same bytes.
    if (isOld) return 'Transfer-Encoding on HTTP/1.0';
    if (codings > 1 || (headers.get('transfer-encoding') as string).toLowerCase() !== 'chunked')
      return 'Transfer-Encoding is not just chunked';
    if (headers.count('content-length') > 0) return 'both Content-Length and Transfer-Encoding';
  }
  if (headers.count('content-length') > 1) return 'repeated Content-Length';
  const token = findForbiddenConnectionToken(headers);
  return token === undefined ? undefined : `Connection names ${token}`;
}

/**
 * Finds a `Connection` option that is not allowed or malformed. A client that names a field there on which sidegate or
 * the app rely wants it removed after the check (CVE-2022-31813, CVE-2024-45410).
 */
export function findForbiddenConnectionToken(headers: HeaderFields): string | undefined {
  if (headers.get('connection') === undefined) return undefined;
  let left = MAX_CONNECTION_OPTIONS;
  for (const line of headers.all('connection')) {
    if (isPlainOption(line)) continue;
    for (const part of line.split(',', left + 1)) {
      if (left-- === 0) return `more than ${MAX_CONNECTION_OPTIONS} options`;
      const problem = findOptionProblem(part.trim());
      if (problem !== undefined) return problem;
    }
  }
  return undefined;
}

function findOptionProblem(token: string): string | undefined {
  if (token === '') return undefined;
  if (!TOKEN.test(token)) return 'an invalid token';
  const name = toFoldedName(token);
  return isProtectedField(name) ? name : undefined;
}
