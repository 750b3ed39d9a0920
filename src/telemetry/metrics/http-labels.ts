/** Label values of HTTP requests: no untrusted input can add a series. */

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT']);

/** The method, or `_OTHER`: clients can send any token as the method. */
export function toMethodLabel(method: string): string {
  return METHODS.has(method) ? method : '_OTHER';
}

/** The status as three digits; `000` if the app sent an invalid one. */
export function toCodeLabel(status: number): string {
  return Number.isInteger(status) && status >= 100 && status <= 599 ? String(status) : '000';
}
