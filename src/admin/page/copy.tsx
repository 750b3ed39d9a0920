/** A command to copy. */
import { Fragment, type JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';

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
