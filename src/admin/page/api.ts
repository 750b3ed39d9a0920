/** Requests to the API of the gate that served the page, and the session of its user. */

import { useCallback, useEffect, useState } from 'preact/hooks';
import type { PageSession } from '../console/page.ts';

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

// Reads from the API again and again, while the page is visible.

/** The newest response; an error does not hide it. */
interface Polled<T> {
  readonly data: T | undefined;
  readonly error: string | undefined;
  /** Reads now. */
  readonly reload: () => void;
}

/** `path`: undefined reads nothing; `given`: what is shown before the first response. */
export function usePolled<T>(path: string | undefined, intervalMs: number, given: Partial<Polled<T>> = {}): Polled<T> {
  const [data, setData] = useState(given.data);
  const [error, setError] = useState(given.error);
  const [turn, setTurn] = useState(0);
  useEffect(() => setData(undefined), [path]);
  useEffect(() => {
    if (path === undefined) return;
    const abort = new AbortController();
    const load = async (): Promise<void> => {
      try {
        setData(await read<T>(path, abort.signal));
        setError(undefined);
      } catch (failure) {
        if (!abort.signal.aborted) setError(toMessage(failure));
      }
    };
    void load();
    const timer = setInterval(() => document.hidden || void load(), intervalMs);
    return () => {
      abort.abort();
      clearInterval(timer);
    };
  }, [path, intervalMs, turn]);
  return { data, error, reload: useCallback(() => setTurn((last) => last + 1), []) };
}

// The state that the page starts with, and how a user ends it.

/** The gate, and what its user may do. */
export type Session = PageSession;

/** Reads the attributes that the gate wrote. */
export function readSession({ dataset }: HTMLElement): Session {
  const user = dataset['user'] ?? '';
  return {
    version: dataset['version'] ?? '',
    replica: dataset['replica'] ?? '',
    canLogIn: dataset['canLogIn'] === 'true',
    hasOutgoing: dataset['hasOutgoing'] === 'true',
    user: user === '' ? undefined : user,
  };
}

/**
 * Makes the browser forget the password, and opens the page again. HTTP Basic has no logout, but a browser drops credentials that a server rejects.
 * Only an XMLHttpRequest can name other credentials; with them, the browser does not ask for a password.
 */
export function logOut(): void {
  const request = new XMLHttpRequest();
  request.open('GET', '/logout', true, 'logged-out', 'logged-out');
  request.onloadend = () => location.assign('/');
  request.send();
}
