/** Reads from the API again and again, while the page is visible. */
import { useCallback, useEffect, useState } from 'preact/hooks';
import { read, toMessage } from './api.ts';

/** The newest response; an error does not hide it. */
interface Polled<T> {
  readonly data: T | undefined;
  readonly error: string | undefined;
  /** Reads now. */
  readonly reload: () => void;
}

/** `path`: undefined reads nothing. */
export function usePolled<T>(path: string | undefined, intervalMs: number): Polled<T> {
  const [data, setData] = useState<T>();
  const [error, setError] = useState<string>();
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
