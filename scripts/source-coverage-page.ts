/** The tables of docs/source-coverage.md: every source of Hookdeck and Svix Ingest, with what to use here (docs/senders/sources.yaml, recipes.yaml). */
import { readFileSync } from 'node:fs';
import { parse, stringify } from 'yaml';
import { findPreset } from '../src/verify/presets/catalogue.ts';
import { toTable } from './markdown.ts';

/** A sender that another gateway lists. */
export interface Source {
  readonly title: string;
  /** Its type there. */
  readonly hookdeck?: string;
  readonly svix?: string;
  /** Presets that verify it; the first one that the catalogue has is used. */
  readonly presets?: readonly string[];
  /** A recipe, if no preset exists. */
  readonly recipe?: string;
  /** Why there is neither. */
  readonly reason?: string;
  /** How to use the preset, if it is not the sender's own. */
  readonly note?: string;
}

/** A config for a sender without a preset. */
export interface Recipe {
  readonly title: string;
  readonly docs: string;
  /** The key, and where it is. */
  readonly key: string;
  readonly webhook: object;
  readonly notes?: readonly string[];
}

/** The status of a source here. */
export type SourceStatus =
  | { readonly kind: 'preset'; readonly name: string }
  | { readonly kind: 'recipe'; readonly name: string }
  | { readonly kind: 'reason'; readonly reason: string };

const FOLDER = new URL('../docs/senders/', import.meta.url);
const readData = <T>(file: string): T => parse(readFileSync(new URL(file, FOLDER), 'utf8')) as T;

/** All sources. */
export const SOURCES: readonly Source[] = readData('sources.yaml');
/** All recipes, by name. */
export const RECIPES: Readonly<Record<string, Recipe>> = readData('recipes.yaml');

/** Derived from the catalogue, so that a new preset takes the place of a recipe. */
export function toStatus({ title, presets = [], recipe, reason }: Source): SourceStatus {
  const name = presets.find((each) => findPreset(each) !== undefined);
  if (name !== undefined) return { kind: 'preset', name };
  if (recipe !== undefined) return { kind: 'recipe', name: recipe };
  if (reason !== undefined) return { kind: 'reason', reason };
  throw new Error(`${title} has neither a preset nor a recipe, and no reason: add one to docs/senders/sources.yaml`);
}

/** Every source, by gateway. */
export function renderSources(): string {
  return [renderGateway('Hookdeck', 'hookdeck'), renderGateway('Svix Ingest', 'svix')].join('\n');
}

export function renderRecipes(): string {
  const shown = Object.entries(RECIPES).filter(([name]) => SOURCES.some((source) => isRecipe(source, name)));
  return shown.map(([name, recipe]) => toRecipe(name, recipe)).join('\n');
}

function isRecipe(source: Source, name: string): boolean {
  const status = toStatus(source);
  return status.kind === 'recipe' && status.name === name;
}

function renderGateway(gateway: string, key: 'hookdeck' | 'svix'): string {
  const own = SOURCES.filter((source) => source[key] !== undefined).toSorted((a, b) =>
    (a[key] ?? '') < (b[key] ?? '') ? -1 : 1,
  );
  const count = (kind: SourceStatus['kind']): number => own.filter((source) => toStatus(source).kind === kind).length;
  const sums = `${own.length} sources: ${count('preset')} by a preset, ${count('recipe')} by a recipe, ${count('reason')} not.`;
  const rows = own.map((source) => [`\`${source[key]}\``, source.title, ...toCells(source)]);
  return `## ${gateway}\n\n${sums}\n\n${toTable(['type', 'sender', 'status', 'here'], rows)}`;
}

function toCells(source: Source): string[] {
  const status = toStatus(source);
  switch (status.kind) {
    case 'preset': {
      const { name } = status;
      const page = findPreset(name)?.from === undefined ? 'presets.md' : 'senders.md';
      return ['preset', `[\`${name}\`](${page})${source.note === undefined ? '' : `; ${source.note}`}`];
    }
    case 'recipe':
      return ['recipe', `[${RECIPES[status.name]?.title}](#${toAnchor(RECIPES[status.name]?.title ?? '')})`];
    case 'reason':
      return ['no', status.reason];
  }
}

function toRecipe(name: string, { title, docs, key, webhook, notes = [] }: Recipe): string {
  const variable = name.toUpperCase().replaceAll('-', '_');
  const keys = 'keys' in webhook ? undefined : { keys: [{ name: 'current', secret: { env: `${variable}_SECRET` } }] };
  const route = { name, match: { path: `/hooks/${name}` }, upstream: 'http://127.0.0.1:3000', webhook: { ...webhook, ...keys } };
  const lines = notes.map((note) => `- ${note.trim()}\n`).join('');
  return `### ${title}\n\nThe key is ${key}. [Document of the sender](${docs}).\n\n\`\`\`yaml\n${stringify({ routes: [route] }, { lineWidth: 0 })}\`\`\`\n${lines === '' ? '' : `\n${lines}`}`;
}

/** As GitHub makes it of a heading. */
function toAnchor(title: string): string {
  return title
    .toLowerCase()
    .replaceAll(/[^a-z0-9 -]/g, '')
    .replaceAll(' ', '-');
}
