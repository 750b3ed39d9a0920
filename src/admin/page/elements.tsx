/** Elements that several views use: tables, lists of facts, errors, texts to copy, dialogs and filters. */

import { type ComponentChildren, Fragment, type JSX } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { isBrowser, type PageLocation, toFormHandler } from './location.ts';

/** A header cell for each column. */
export function ColumnHeads({ names }: { readonly names: readonly string[] }): JSX.Element[] {
  return names.map((name) => (
    <th key={name} scope="col">
      {name}
    </th>
  ));
}

/** Names and values; values that are null are omitted. */
export function Facts({ facts }: { readonly facts: readonly (readonly [string, string | JSX.Element | null])[] }): JSX.Element {
  return (
    <dl class="facts">
      {facts.map(([name, value], index) =>
        value === null ? null : (
          <div key={`${name}${index}`}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ),
      )}
    </dl>
  );
}

/** An error that a screen reader announces; nothing without one. */
export function ErrorNotice({ error }: { readonly error: string | undefined }): JSX.Element | null {
  if (error === undefined) return null;
  return (
    <p class="notice bad" role="alert">
      {error}
    </p>
  );
}

const SHOWN_MS = 2_000;

interface CopyProps {
  readonly label: string;
  readonly text: string;
  /** Breaks lines only between words: an option that is broken at its hyphen looks like two. */
  readonly isCommand?: boolean;
}

/** A text with a button that copies it. */
export function Copy({ label, text, isCommand = false }: CopyProps): JSX.Element {
  const [isCopied, setIsCopied] = useState(false);
  const code = useRef<HTMLElement>(null);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setIsCopied(true);
      setTimeout(() => setIsCopied(false), SHOWN_MS);
    } catch {
      // Only pages of localhost and https have a clipboard: the user copies the selection.
      if (code.current !== null) getSelection()?.selectAllChildren(code.current);
    }
  };
  return (
    <figure class="copy">
      <figcaption>{label}</figcaption>
      <pre>
        <code ref={code}>{isCommand ? text.split(' ').map(toWord) : text}</code>
      </pre>
      <button type="button" onClick={() => void copy()}>
        {isCopied ? 'Copied' : 'Copy'}
      </button>
    </figure>
  );
}

function toWord(word: string, index: number): JSX.Element {
  return (
    <Fragment key={index}>
      {index > 0 && ' '}
      <span class="word">{word}</span>
    </Fragment>
  );
}

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly isSmall?: boolean;
  readonly children: ComponentChildren;
}

/**
 * A modal dialog, open while it is rendered: the browser keeps the focus in it, closes it with Escape, and returns the focus. Without JavaScript, a
 * part of the page.
 */
export function Dialog({ title, onClose, isSmall = false, children }: DialogProps): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const element = dialog.current;
    const before = document.activeElement;
    element?.showModal();
    return () => {
      element?.close();
      const next = before?.isConnected === true ? before : document.getElementById('main');
      if (next instanceof HTMLElement) next.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      open={!isBrowser}
      class={isSmall ? 'small' : undefined}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <header>
        <h2 id={id}>{title}</h2>
        <button type="button" onClick={onClose}>
          Close
        </button>
      </header>
      {children}
    </dialog>
  );
}

interface FiltersProps {
  readonly place: PageLocation;
  /** The view that they belong to, unless it is the first one. */
  readonly view?: string;
  /** The fields. */
  readonly names: readonly string[];
  readonly label?: string;
  readonly children: ComponentChildren;
}

/** As in page.css. */
const WIDE = '(min-width: 48.01rem)';

/** A form of filters, which leaves the screen of a phone to the list: open at first only on a wide screen. */
export function Filters({ place, view, names, label = 'Filters', children }: FiltersProps): JSX.Element {
  const [isOpen] = useState(() => !isBrowser || matchMedia(WIDE).matches);
  const apply = toFormHandler(place, names);
  const count = names.flatMap((name) => place.query.getAll(name)).filter((value) => value !== '').length;
  return (
    <details class="collapsible" open={isOpen}>
      <summary>
        Filters
        {count > 0 && ` (${count})`}
      </summary>
      <form class="filters" action="/" onSubmit={apply} onChange={apply} aria-label={label}>
        {view !== undefined && <input type="hidden" name="view" value={view} />}
        {children}
        <noscript>
          <button type="submit">Filter</button>
        </noscript>
        <a href={view === undefined ? '/' : `/?view=${view}`}>Clear filters</a>
      </form>
    </details>
  );
}

interface QueryProps {
  readonly query: URLSearchParams;
}

/** Inputs for texts; `labels`: by the names of the parameters. */
export function Texts({ query, labels }: QueryProps & { readonly labels: Readonly<Record<string, string>> }): JSX.Element[] {
  return Object.entries(labels).map(([name, label]) => (
    <label key={name}>
      {label}{' '}
      <input name={name} class={name} maxLength={1_024} value={query.get(name) ?? ''} autoComplete="off" spellcheck={false} />
    </label>
  ));
}

/** The period of a list. */
export function Period({ query }: QueryProps): JSX.Element {
  return (
    <>
      <label>
        From (UTC) <input type="datetime-local" name="from" value={query.get('from') ?? ''} />
      </label>
      <label>
        To (UTC) <input type="datetime-local" name="to" value={query.get('to') ?? ''} />
      </label>
    </>
  );
}
