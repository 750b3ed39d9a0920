/** A list of the API in pages. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { usePolled } from '../api.ts';
import type { ListPage } from './outgoing-api.ts';

const INTERVAL_MS = 5_000;

/** The page that is shown, kept up to date. */
interface Pages<T> {
  readonly page: ListPage<T> | undefined;
  readonly error: string | undefined;
  readonly reload: () => void;
  /** The buttons that open other pages. */
  readonly controls: JSX.Element;
}

/** `path`: with a query; another one starts at its first page. `noun`: what the list has. */
export function usePages<T>(path: string, noun: string): Pages<T> {
  const [iterator, setIterator] = useState<string>();
  useEffect(() => setIterator(undefined), [path]);
  const after = iterator === undefined ? '' : `&iterator=${encodeURIComponent(iterator)}`;
  const { data, error, reload } = usePolled<ListPage<T>>(`${path}${after}`, INTERVAL_MS);
  const controls = (
    <>
      {iterator !== undefined && (
        <button type="button" onClick={() => setIterator(undefined)}>
          First {noun}
        </button>
      )}{' '}
      {data !== undefined && data.iterator !== null && (
        <button type="button" onClick={() => setIterator(data.iterator ?? undefined)}>
          More {noun}
        </button>
      )}
    </>
  );
  return { page: data, error, reload, controls };
}
