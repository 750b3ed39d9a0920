/** Messages that views have in common. */
import type { JSX } from 'preact';

/** An error that a screen reader announces; nothing without one. */
export function ErrorNotice({ error }: { readonly error: string | undefined }): JSX.Element | null {
  if (error === undefined) return null;
  return (
    <p class="notice bad" role="alert">
      {error}
    </p>
  );
}
