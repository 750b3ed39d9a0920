/** Finds the preset that an operator probably wants, from the names and headers in the config. */
import { PRESETS } from '../../verify/presets/catalogue.ts';
import type { SchemeDescription } from '../../verify/schemes/description.ts';

/** Names that are too short or too common as words to identify a sender. */
const COMMON_WORDS: ReadonlySet<string> = new Set([
  'courier',
  'cursor',
  'front',
  'knock',
  'line',
  'meta',
  'persona',
  'render',
  'replicate',
  'segment',
  'tally',
  'x',
]);
/** Headers that many senders use, so that they identify none. */
const COMMON_HEADERS: ReadonlySet<string> = new Set(['request-id', 'x-webhook-id']);

/** The preset whose sender is mentioned in one of `texts`, such as `GITHUB_SECRET` or `/hooks/github`; the longest name wins. */
export function findNamedPreset(texts: readonly string[], current: string): SchemeDescription | undefined {
  const words = new Set(texts.flatMap((text) => text.toLowerCase().split(/[^a-z0-9]+/)));
  const named = PRESETS.filter(
    ({ name, from }) =>
      from !== undefined && name !== current && !COMMON_WORDS.has(name) && name.split('-').every((part) => words.has(part)),
  );
  return named.sort((a, b) => b.name.length - a.name.length)[0];
}

/** The first preset that reads its signature or ID from this header; undefined if the `current` scheme uses the header itself. */
export function findPresetOfHeader(header: string, current: SchemeDescription): SchemeDescription | undefined {
  const name = header.toLowerCase();
  if (COMMON_HEADERS.has(name) || toHeaders(current).includes(name)) return undefined;
  // The ID header first: GitHub and Meta use the same signature header.
  return (
    PRESETS.find((preset) => toHeaders(preset).at(-1) === name) ?? PRESETS.find((preset) => toHeaders(preset).includes(name))
  );
}

function toHeaders({ signature, id }: SchemeDescription): string[] {
  return [signature?.header, id !== undefined && 'header' in id ? id.header : undefined].flatMap((header) =>
    header === undefined ? [] : [header.toLowerCase()],
  );
}
