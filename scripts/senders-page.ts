/** Writes docs/senders.md: how the sender of each preset interprets responses, and which status sidegate sends it. */

import type { RefusalCode } from '../src/core/refusal.ts';
import { REFUSALS } from '../src/core/refusal-catalogue.ts';
import { PRESETS } from '../src/verify/presets/catalogue.ts';
import type { SenderProfile } from '../src/verify/presets/sender-profile.ts';
import { SENDERS, toMeaning, toStatuses } from '../src/verify/presets/senders.ts';

const HEAD = `# How senders interpret a response

A refusal means one of three things: the event is *done* and must not be sent again, the delivery can *never* be accepted as it is, or the sender should retry *later*. Senders interpret status codes differently: some give up on a
status that others retry, and some disable the endpoint. If the status in [refusals.md](refusals.md) would mislead the sender of a preset, sidegate uses another one; the code in the body stays the same. If a sender needs a certain text, repeats and deliveries that sidegate stores
(\`ack: onAccept\`) get it; the app must send it for all others. Handshakes get the status that the sender
expects ([handshakes.md](handshakes.md)).

This page is generated from sidegate's own data (\`npm run docs\`). Where a sender's documentation says nothing, the cell is empty, and sidegate assumes that any 2xx counts as delivered and that everything else is retried.

| scheme | counts as delivered | retries | never retries after | disables the endpoint after | timeout | schedule | other statuses |
| --- | --- | --- | --- | --- | --- | --- | --- |
`;

const MEANINGS = `
## Meanings of refusals

| meaning | codes |
| --- | --- |
`;

/** Renders the page. */
export function renderSendersPage(): string {
  const named = PRESETS.filter(({ from }) => from !== undefined);
  return HEAD + named.map(({ name }) => toSenderRow(name, SENDERS[name] ?? {})).join('') + MEANINGS + toMeaningRows();
}

function toSenderRow(name: string, profile: SenderProfile): string {
  const { retries, givesUpOn, disabledBy, waitsSeconds, schedule } = profile;
  return toRow([
    `\`${name}\``,
    toAccepted(profile),
    retries === undefined ? '' : RETRIES[retries],
    toList(givesUpOn ?? []),
    toList(disabledBy ?? []),
    waitsSeconds === undefined ? '' : `${waitsSeconds} s`,
    schedule ?? '',
    toChanges(name),
  ]);
}

/** Which responses count as delivered; empty for any 2xx. */
export function toAccepted({ acknowledgedBy = [], acknowledgement }: SenderProfile): string {
  const statuses = toList(acknowledgedBy);
  return acknowledgement === undefined ? statuses : `${statuses === '' ? '2xx' : statuses} with the text \`${acknowledgement}\``;
}

/** Which failures a sender retries, in words. */
export const RETRIES: Readonly<Record<NonNullable<SenderProfile['retries']>, string>> = {
  failures: 'after anything but a 2xx',
  'server-errors': 'after 429 and 5xx',
  nothing: 'never',
};

/** Grouped by status, because one sender often needs the same status for many codes. */
export function toChanges(name: string): string {
  const byChange = new Map<string, RefusalCode[]>();
  for (const [code, status] of toStatuses(name)) {
    // The status that the sender expects for its own verification request.
    if (code === 'handshake') continue;
    const change = `${REFUSALS[code].status} → ${status}`;
    byChange.set(change, [...(byChange.get(change) ?? []), code]);
  }
  return [...byChange].map(([change, codes]) => `${change} (${codes.map((code) => `\`${code}\``).join(', ')})`).join('; ');
}

function toMeaningRows(): string {
  const codes = Object.keys(REFUSALS) as RefusalCode[];
  return (['done', 'never', 'later'] as const)
    .map((meaning) =>
      toRow([
        meaning,
        codes
          .filter((code) => toMeaning(code) === meaning)
          .map((code) => `\`${code}\``)
          .join(', '),
      ]),
    )
    .join('');
}

function toList(statuses: readonly number[]): string {
  return statuses.join(', ');
}

function toRow(cells: readonly string[]): string {
  return `| ${cells.map((cell) => (cell === '' ? '–' : cell)).join(' | ')} |\n`;
}
