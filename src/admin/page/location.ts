/** The state in the address, so that a view can be bookmarked, shared and left with the back button. */
import { useEffect, useState } from 'preact/hooks';

/** The query of the address. */
export interface PageLocation {
  readonly query: URLSearchParams;
  /** Changes parts of the query; null and '' remove one. */
  readonly go: (changes: Readonly<Record<string, string | readonly string[] | null>>) => void;
}

/** Renders again when the address changes. */
export function usePlace(): PageLocation {
  const [search, setSearch] = useState(location.search);
  useEffect(() => {
    const onChange = (): void => setSearch(location.search);
    addEventListener('popstate', onChange);
    return () => removeEventListener('popstate', onChange);
  }, []);
  const query = new URLSearchParams(search);
  const go: PageLocation['go'] = (changes) => {
    const next = toSearch(new URLSearchParams(location.search), changes);
    history.pushState(null, '', next === '' ? '/' : `/?${next}`);
    setSearch(location.search);
  };
  return { query, go };
}

/** For the events of a form with these fields: each change applies at once, and Enter in a text. */
export function toFormHandler({ go }: PageLocation, names: readonly string[]): (event: Event) => void {
  return (event) => {
    event.preventDefault();
    const { form } = event.target as HTMLInputElement;
    const values = new FormData(form ?? (event.target as HTMLFormElement));
    go(Object.fromEntries(names.map((name) => [name, values.getAll(name).map((value) => String(value).trim())])));
  };
}

function toSearch(query: URLSearchParams, changes: Parameters<PageLocation['go']>[0]): string {
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const each of typeof value === 'string' ? [value] : (value ?? [])) if (each !== '') query.append(name, each);
  }
  return query.toString();
}

const RETURN = 'sidegate-return';

/** Before the login, which ends at `/`. */
export function rememberPlace(): void {
  sessionStorage.setItem(RETURN, location.search);
}

/** Once. */
export function recallPlace(): string | null {
  const search = sessionStorage.getItem(RETURN);
  sessionStorage.removeItem(RETURN);
  return search;
}
