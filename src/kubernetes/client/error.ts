/** Why the API server did not do what it was asked; no text of it holds a credential. */

/** Reasons of our own, where no API server gave one. */
export type OwnReason = 'Unreachable' | 'Timeout' | 'TooLarge' | 'NotUnderstood' | 'Redirected' | 'NoCredentials';

/** A refusal by the API server, or no answer of its. */
export class KubeError extends Error {
  /** The HTTP status; 0 where no answer came. */
  readonly status: number;
  /** As the API server has it (Forbidden, NotFound, Conflict …), or one of ours. */
  readonly reason: string;

  constructor(status: number, reason: string, message: string) {
    super(message);
    this.name = 'KubeError';
    this.status = status;
    this.reason = reason;
  }
}

/** Reasons of statuses that came without any, as apimachinery's StatusReason names them. */
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
const LONGEST_MESSAGE = 2_000;

/** The error in an answer: its Status where it is one, else what its status tells. Text that is no Status is some proxy's page, and is not shown. */
export function toKubeError(status: number, body: Buffer, request: string): KubeError {
  const said = parseStatus(body);
  const reason = said?.reason || REASONS[status] || 'Unknown';
  const message = said?.message || `the answer was ${status}, without a word of the API server`;
  return new KubeError(status, reason, `${request}: ${message.slice(0, LONGEST_MESSAGE)}`);
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
