/** The head of a table. */
import type { JSX } from 'preact';

/** A header cell for each column. */
export function ColumnHeads({ names }: { readonly names: readonly string[] }): JSX.Element[] {
  return names.map((name) => (
    <th key={name} scope="col">
      {name}
    </th>
  ));
}
