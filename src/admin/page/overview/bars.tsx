/** Counts as a table with bars, so that the figures are texts. */
import type { JSX } from 'preact';

interface BarsProps {
  readonly caption: string;
  readonly bars: readonly (readonly [name: string, count: number])[];
  /** Sets the color. */
  readonly kind: 'forwarded' | 'rejected';
}

/** The longest bar has the whole width. */
export function Bars({ caption, bars, kind }: BarsProps): JSX.Element {
  const most = Math.max(1, ...bars.map(([, count]) => count));
  return (
    <table class="bars">
      <caption>{caption}</caption>
      <tbody>
        {bars.map(([name, count]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td class="number">{count.toLocaleString('en')}</td>
            <td class="bar">
              <svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
                <rect class={kind} width={(100 * count) / most} height="10" />
              </svg>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
