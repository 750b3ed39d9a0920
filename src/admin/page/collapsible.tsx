/** Filters that leave the screen of a phone to the list, and the period that they share. */
import type { ComponentChildren, JSX } from 'preact';
import { useState } from 'preact/hooks';

interface CollapsibleProps {
  readonly title: string;
  /** How many filters are set. */
  readonly count: number;
  readonly children: ComponentChildren;
}

/** As in page.css. */
const WIDE = '(min-width: 48.01rem)';

/** Open at first only on a wide screen. */
export function Collapsible({ title, count, children }: CollapsibleProps): JSX.Element {
  const [isOpen] = useState(() => matchMedia(WIDE).matches);
  return (
    <details class="collapsible" open={isOpen}>
      <summary>
        {title}
        {count > 0 && ` (${count})`}
      </summary>
      {children}
    </details>
  );
}

/** The period of a list; `current`: the value of a parameter. */
export function Period({ current }: { readonly current: (name: 'from' | 'to') => string }): JSX.Element {
  return (
    <>
      <label>
        From (UTC) <input type="datetime-local" name="from" value={current('from')} />
      </label>
      <label>
        To (UTC) <input type="datetime-local" name="to" value={current('to')} />
      </label>
    </>
  );
}
