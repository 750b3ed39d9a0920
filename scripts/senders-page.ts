/** Writes docs/senders.md: how each preset's sender takes an answer, and what the gate answers it. */
import { REFUSALS, type RefusalCode } from '../src/core/refusal.ts';
import { PRESETS } from '../src/schemes/catalogue.ts';
import { SENDERS, type SenderProfile, toMeaning, toStatuses } from '../src/schemes/senders.ts';

const HEAD = `# How senders take an answer

A refusal means one of three things: the event is *done* and must not come again, the delivery can *never* be taken as it is, or it should
come again *later*. Senders read statuses differently: some give up for ever on one that others retry, and some take one as the wish to
be switched off. Where the status of [refusals.md](refusals.md) would tell a preset's sender something else than is meant, it gets another one;
the code in the content stays the same. A handshake is answered with the status that its sender waits for ([handshakes.md](handshakes.md)). This page is written from the gate's own data (\`npm run docs\`); what a sender's documents do not
say is left out: such a sender is taken to count any 2xx as delivered, and to send everything else again.

| scheme | takes for delivered | sends again | never sends again | is switched off by | waits for the answer | its schedule | answered otherwise |
| --- | --- | --- | --- | --- | --- | --- | --- |
`;

const MEANINGS = `
## What refusals mean

| meaning | codes |
| --- | --- |
`;

/** The page as it should be. */
export function renderSendersPage(): string {
  const named = PRESETS.filter(({ from }) => from !== undefined);
  return HEAD + named.map(({ name }) => toSenderRow(name, SENDERS[name] ?? {})).join('') + MEANINGS + toMeaningRows();
}

function toSenderRow(name: string, profile: SenderProfile): string {
  const { acknowledgedBy, retries, givesUpOn, disabledBy, waitsSeconds, schedule } = profile;
  return toRow([
    `\`${name}\``,
    toList(acknowledgedBy ?? []),
    retries === undefined ? '' : RETRIES[retries],
    toList(givesUpOn ?? []),
    toList(disabledBy ?? []),
    waitsSeconds === undefined ? '' : `${waitsSeconds} s`,
    schedule ?? '',
    toChanges(name),
  ]);
}

const RETRIES: Readonly<Record<NonNullable<SenderProfile['retries']>, string>> = {
  failures: 'after anything but a 2xx',
  'server-errors': 'after 429 and 5xx',
  nothing: 'nothing',
};

/** By status, as one sender often needs the same for many codes. */
function toChanges(name: string): string {
  const byChange = new Map<string, RefusalCode[]>();
  for (const [code, status] of toStatuses(name)) {
    // What it waits for itself.
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
