/** Requests to the API of the gate that served the page. */

/** A request that failed; the message says what to do next. */
export class ApiError extends Error {
  /** 0: no response. */
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

const UNREACHABLE = 'sidegate does not respond. Check that it runs, and that the port-forward to it is still open.';

/** Sends a request; rejects with an `ApiError` unless the status is 2xx. */
export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const response = await fetch(`/api/v1${path}`, init).catch((error: unknown) => {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(0, UNREACHABLE);
  });
  if (response.ok) return response;
  const problem = (await response.json().catch(() => ({}))) as { readonly detail?: string; readonly title?: string };
  throw new ApiError(response.status, problem.detail ?? problem.title ?? `The response has status ${response.status}.`);
}

/** Reads JSON. */
export async function read<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await request(path, signal && { signal })).json()) as T;
}

/** The text of any error. */
export function toMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
