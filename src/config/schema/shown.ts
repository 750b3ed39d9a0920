/** Decides which parts of a config its problems may show: someone may have written a secret into it, and the output may end in a log. */
import { descend, type JsonSchema, toVariants } from './json-schema.ts';
import { ENV_NAME } from './scalars.ts';

const SCALARS: readonly unknown[] = ['string', 'number', 'integer', 'boolean'];
const MIN_KEY_LENGTH = 20;
const MIN_HIDDEN_LENGTH = 4;

/**
 * A key as it may be shown. An unknown key may be a secret in braces if it has no value, and may end with one after a colon
 * without a space.
 */
export function toShownKey(key: string, isKnown: boolean, hasValue: boolean): string {
  if (isKnown) return key;
  const colon = key.indexOf(':');
  if (colon !== -1) return `${key.slice(0, colon)}:…`;
  return hasValue ? key : '…';
}

/** Whether a scalar may be shown at a place with these schemas: only if one of them is of such a scalar that is never a secret. */
export function isShownValue(schemas: readonly JsonSchema[], value: unknown): boolean {
  return schemas.some((schema) => {
    if (schema.writeOnly === true) return false;
    if (schema['const'] !== undefined) return schema['const'] === value;
    return typeof value === 'string'
      ? schema['type'] === 'string' && isShownText(value, schema)
      : SCALARS.includes(schema['type']);
  });
}

/** Whether a scalar may be shown at this path of the config. */
export function isShownAt(schema: JsonSchema, path: readonly PropertyKey[], value: unknown): boolean {
  return isShownValue(path.reduce(descend, toVariants(schema)), value);
}

/** URLs with a password or a token, and what looks like a key. In place of the name of a variable, users write its value. */
function isShownText(text: string, schema: JsonSchema): boolean {
  if (schema['pattern'] === ENV_NAME.source && !ENV_NAME.test(text)) return false;
  return !/[@?]/.test(text) && !text.split(/[\s,"']+/).some(looksLikeKey);
}

/** Standard Webhooks secrets, and keys in base64 or hexadecimal. */
function looksLikeKey(word: string): boolean {
  if (/^wh(?:sec|sk)_/.test(word)) return true;
  return word.length >= MIN_KEY_LENGTH && /\d/.test(word) && /[a-z]/i.test(word) && !/[.:]|^\//.test(word);
}

/** Removes `input`, and quoted parts of it, from a text about it. A short one may be a part of any word. */
export function hideInput(text: string, input: string): string {
  if (input === '') return text;
  return (input.length < MIN_HIDDEN_LENGTH ? text : text.replaceAll(input, '…')).replaceAll(
    /"([^"]+)"/g,
    (quoted, part: string) => (input.includes(part) || part.includes('@') ? '"…"' : quoted),
  );
}
