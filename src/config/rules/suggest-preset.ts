/** Finds the preset that an operator probably wants, by what the config calls things and by the headers that it names. */
import { PRESETS } from '../../auth/schemes/catalogue.ts';
import type { SchemeDescription } from '../../auth/schemes/description.ts';

/** Names that are too short, or too usual as words, to point to a sender. */
const USUAL_WORDS: ReadonlySet<string> = new Set(['x', 'line', 'meta']);

/** The preset of the sender that one of `texts` names, such as `GITHUB_SECRET` or `/hooks/github`; the longest name wins. */
export function findNamedPreset(texts: readonly string[], current: string): SchemeDescription | undefined {
  const words = new Set(texts.flatMap((text) => text.toLowerCase().split(/[^a-z0-9]+/)));
  const named = PRESETS.filter(
    ({ name, from }) =>
      from !== undefined && name !== current && !USUAL_WORDS.has(name) && name.split('-').every((part) => words.has(part)),
  );
  return named.sort((a, b) => b.name.length - a.name.length)[0];
}

/** The first preset whose signature or id stands in this header, other than the `current` scheme's own headers. */
export function findPresetOfHeader(header: string, current: SchemeDescription): SchemeDescription | undefined {
  const name = header.toLowerCase();
  if (toHeaders(current).includes(name)) return undefined;
  // By its id first: GitHub and Meta have one name for the signature.
  return (
    PRESETS.find((preset) => toHeaders(preset).at(-1) === name) ?? PRESETS.find((preset) => toHeaders(preset).includes(name))
  );
}

function toHeaders({ signature, id }: SchemeDescription): string[] {
  return [signature?.header, id !== undefined && 'header' in id ? id.header : undefined].flatMap((header) =>
    header === undefined ? [] : [header.toLowerCase()],
  );
}
