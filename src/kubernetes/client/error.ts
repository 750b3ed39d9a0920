/** Errors of requests to the API server. Their messages never contain credentials. */

/** Reasons of failures before the API server sent a response, or of responses that cannot be used. */
export type ClientReason = 'Unreachable' | 'Timeout' | 'TooLarge' | 'NotUnderstood' | 'Redirected' | 'NoCredentials';

/** The API server rejected the request, or did not respond. */
export class KubeError extends Error {
  /** The HTTP status; 0 without a response. */
  readonly status: number;
  /** The API server's reason (Forbidden, NotFound, Conflict …), or a ClientReason. */
  readonly reason: string;

  constructor(status: number, reason: string, message: string) {
    super(message);
    this.name = 'KubeError';
    this.status = status;
    this.reason = reason;
  }
}

/** Reasons by status, for responses without one; the names are those of StatusReason in apimachinery. */
const REASONS: Readonly<Record<number, string>> = {
  400: 'BadRequest',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'NotFound',
  405: 'MethodNotAllowed',
  406: 'NotAcceptable',
  409: 'Conflict',
  410: 'Expired',
  413: 'RequestEntityTooLarge',
  415: 'UnsupportedMediaType',
  422: 'Invalid',
  429: 'TooManyRequests',
  500: 'InternalError',
  503: 'ServiceUnavailable',
  504: 'Timeout',
};
const MAX_MESSAGE_LENGTH = 2_000;

/**
 * Converts a response to an error. Other bodies than a Status object come from a proxy, and are not shown, except for the first line of a
 * kubectl that could not connect or log in.
 */
export function toKubeError(status: number, body: Buffer, request: string, isOfKubectl: boolean): KubeError {
  const parsed = parseStatus(body);
  const reason = parsed?.reason || REASONS[status] || 'Unknown';
  const unparsed = `the response was ${status}, without a message from the API server`;
  const message = parsed?.message || (isOfKubectl ? `kubectl: ${body.toString('utf8').split('\n', 1)[0]}` : unparsed);
  return new KubeError(status, reason, `${request}: ${message.slice(0, MAX_MESSAGE_LENGTH)}`);
}

function parseStatus(body: Buffer): { readonly reason: string; readonly message: string } | undefined {
  try {
    const value = JSON.parse(body.toString('utf8')) as Record<string, unknown> | null;
    if (value?.['kind'] !== 'Status') return undefined;
    const { reason, message } = value;
    return { reason: typeof reason === 'string' ? reason : '', message: typeof message === 'string' ? message : '' };
  } catch {
    return undefined;
  }
}
