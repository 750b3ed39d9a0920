/** Kinds of event that a sender names in headers it does not sign: their spellings are made one, or each would be a new event. */
import type { HeaderFields } from '../../core/headers.ts';

/** What the names of kinds consist of; anything else (NBSP, full-width letters, other alphabets) could be folded by an app in its own way. */
const KIND = /^[A-Za-z0-9 /._:-]{1,128}$/;
/** Senders' libraries treat these alike: Shopify's makes ORDERS_CREATE of `orders/create` and `orders.create`. */
const SEPARATORS = /[ /._:-]+/g;
const OUTER_SEPARATORS = /^_|_$/g;
/** No kind contains it, so that two headers cannot share their text. */
const BETWEEN = '\n';

/** Reads the kind of a delivery from its headers, folded; undefined where a header holds no name of a kind. */
export type ReadKind = (headers: HeaderFields) => string | undefined;

/** Compiles the reader for these headers; a missing one is a kind of its own. */
export function compileKind(names: readonly string[]): ReadKind {
  const lowered = names.map((name) => name.toLowerCase());
  return (headers) => {
    const values = lowered.map((name) => headers.get(name) ?? '');
    return values.every((value) => value === '' || KIND.test(value)) ? values.map(foldKind).join(BETWEEN) : undefined;
  };
}

/** One spelling for all that mean the same. */
function foldKind(value: string): string {
  return value.toLowerCase().replace(SEPARATORS, '_').replace(OUTER_SEPARATORS, '');
}
