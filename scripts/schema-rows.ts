/** Converts a JSON Schema to the rows of a table, one for each key. */
import type { JsonSchema } from '../src/config/schema/json-schema.ts';
import { toTable } from './markdown.ts';

/** One key. */
export interface Row {
  readonly key: string;
  readonly value: string;
  readonly fallback: string;
  readonly text: string;
}

/** A table of the rows with `head` above its four columns. */
export function toKeyTable(head: readonly string[], rows: readonly Row[]): string {
  const cells = rows.map(({ key, value, fallback, text }) => [`\`${key}\``, value.replaceAll('|', '\\|'), fallback, text]);
  return toTable(head, cells);
}

/** Returns the rows of a schema; `path` is the prefix of each key. */
export function toRows(schema: JsonSchema, path: string): Row[] {
  const variants = toVariants(schema);
  // A key that accepts one value or a list is shown as a list.
  const lists = variants.flatMap(({ items }) => (items === undefined ? [] : [items]));
  if (lists.length > 0) return lists.flatMap((items) => toRows(items, `${path}[]`));
  const rows = variants.flatMap((variant) =>
    Object.entries(variant.properties ?? {}).flatMap(([name, property]) => {
      const key = path === '' ? name : `${path}.${name}`;
      const inner = toRows(property, key);
      const isBareSection = inner.length > 0 && property['description'] === undefined;
      const isOneOfSeveral = variants.some(({ properties }) => properties !== undefined && !(name in properties));
      return isBareSection ? inner : [toRow(key, property, isOneOfSeveral ? {} : variant), ...inner];
    }),
  );
  // Variants may share some of their keys.
  return rows.filter(({ key }, index) => rows.findIndex((row) => row.key === key) === index);
}

function toVariants(schema: JsonSchema): readonly JsonSchema[] {
  return schema.anyOf === undefined ? [schema] : schema.anyOf.flatMap(toVariants);
}

function toRow(key: string, schema: JsonSchema, parent: JsonSchema): Row {
  const required = parent['required'];
  const isRequired = Array.isArray(required) && required.includes(key.split('.').at(-1));
  const fallback = schema['default'];
  return {
    key,
    value: toValueText(schema),
    fallback: isRequired
      ? 'required'
      : fallback === undefined || isPlainObject(fallback)
        ? '–'
        : `\`${typeof fallback === 'string' ? fallback : JSON.stringify(fallback)}\``,
    text: String(schema['description'] ?? ''),
  };
}

function isPlainObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** More values would fill the page; their description says where they are listed. */
const MAX_LISTED = 40;

function toEnumText(values: readonly unknown[]): string {
  const named = values.map((value) => `\`${value}\``);
  return named.length > MAX_LISTED ? `${named.slice(0, 3).join(', ')} and ${named.length - 3} others` : named.join(', ');
}

function toValueText(schema: JsonSchema): string {
  const examples = schema['examples'];
  if (Array.isArray(examples) && typeof examples[0] !== 'object') return `\`${examples[0]}\``;
  if (Array.isArray(schema['enum'])) return toEnumText(schema['enum']);
  if (schema['const'] !== undefined) return `\`${schema['const']}\``;
  if (schema.anyOf !== undefined) return [...new Set(schema.anyOf.map(toValueText))].join(' or ');
  if (schema['type'] === 'array') return `list of ${schema.items === undefined ? 'values' : toValueText(schema.items)}`;
  const words: Readonly<Record<string, string>> = {
    object: 'object',
    string: 'string',
    integer: 'integer',
    number: 'number',
    boolean: '`true` or `false`',
  };
  return words[String(schema['type'])] ?? 'value';
}
