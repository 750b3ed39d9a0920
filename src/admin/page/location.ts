/** The state in the address, so that a view can be bookmarked, shared and left with the back button. */
import { useEffect, useState } from 'preact/hooks';

/** False while the gate renders the page, which has neither an address nor a screen nor storage, and runs without effects. */
export const isBrowser = typeof document !== 'undefined';

/** Parts of the query; null and '' remove one. */
type Changes = Readonly<Record<string, string | readonly string[] | null>>;

/** The query of the address. */
export interface PageLocation {
  readonly query: URLSearchParams;
  /** The address with these changes. */
  readonly toAddress: (changes: Changes) => string;
  /** Opens it. */
  readonly go: (changes: Changes) => void;
}

/** Renders again when the address changes; `search`: the query that the gate got. */
export function usePlace(search = isBrowser ? location.search : ''): PageLocation {
  const [current, setCurrent] = useState(search);
  useEffect(() => {
    const onChange = (): void => setCurrent(location.search);
    addEventListener('popstate', onChange);
    return () => removeEventListener('popstate', onChange);
  }, []);
  const query = new URLSearchParams(current);
  const go: PageLocation['go'] = (changes) => {
    history.pushState(null, '', toAddress(new URLSearchParams(location.search), changes));
    setCurrent(location.search);
  };
  return { query, toAddress: (changes) => toAddress(new URLSearchParams(query), changes), go };
}

/** For a link: opens it in place, unless the user wants a new tab. Without JavaScript, its address works as well. */
export function toOpener(open: () => void): (click: MouseEvent) => void {
  return (click) => {
    if (click.ctrlKey || click.metaKey || click.shiftKey) return;
    click.preventDefault();
    open();
  };
}

/** For the events of a form with these fields: each change applies at once, and Enter in a text. The list begins at its first page. */
export function toFormHandler({ go }: PageLocation, names: readonly string[]): (event: Event) => void {
  return (event) => {
    event.preventDefault();
    const { form } = event.target as HTMLInputElement;
    const values = new FormData(form ?? (event.target as HTMLFormElement));
    const fields = names.map((name) => [name, values.getAll(name).map((value) => String(value).trim())]);
    go({ cursor: null, iterator: null, ...Object.fromEntries(fields) });
  };
}

function toAddress(query: URLSearchParams, changes: Changes): string {
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const each of typeof value === 'string' ? [value] : (value ?? [])) if (each !== '') query.append(name, each);
  }
  return query.size === 0 ? '/' : `/?${query}`;
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
