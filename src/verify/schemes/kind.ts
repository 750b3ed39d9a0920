/** Kinds of events in unsigned headers. Their spellings are normalized, because otherwise each spelling would count as a new event. */
import type { HeaderFields } from '../../core/headers.ts';

/** Allowed characters of a kind. Apps could fold others (NBSP, full-width letters, other alphabets) in ways that differ from ours. */
const KIND = /^[A-Za-z0-9 /._:-]{1,128}$/;
/** Senders' libraries treat these as equal: Shopify's turns `orders/create` and `orders.create` into ORDERS_CREATE. */
const SEPARATORS = /[ /._:-]+/g;
const OUTER_SEPARATORS = /^_|_$/g;
/** No kind contains this separator, so the values of two headers cannot run into each other. */
const BETWEEN = '\n';

/** Reads the normalized kind of a delivery from its headers; undefined if a header contains other characters. */
type ReadKind = (headers: HeaderFields) => string | undefined;

/** Compiles the function for these headers. A missing header is a separate kind. */
export function compileKind(names: readonly string[]): ReadKind {
  const lowered = names.map((name) => name.toLowerCase());
  return (headers) => {
    const values = lowered.map((name) => headers.get(name) ?? '');
    return values.every((value) => value === '' || KIND.test(value)) ? values.map(foldKind).join(BETWEEN) : undefined;
  };
}

/** Returns which kinds a route accepts, or what is wrong with its list. In an entry, commas separate the values of several headers. */
export function parseKinds(
  names: readonly string[],
  entries: readonly string[],
): readonly string[] | { readonly problem: string } {
  const kinds: string[] = [];
  for (const entry of entries) {
    const values = entry.split(',').map((value) => value.trim());
    if (values.length !== names.length)
      return { problem: `"${entry}" must have one value for each of these headers, separated by commas: ${names.join(', ')}` };
    if (!values.every((value) => value === '' || KIND.test(value)))
      return { problem: `"${entry}" has characters other than A-Z a-z 0-9 / . _ : - and spaces` };
    kinds.push(values.map(foldKind).join(BETWEEN));
  }
  return kinds;
}

/** Normalizes the spelling. */
function foldKind(value: string): string {
  return value.toLowerCase().replace(SEPARATORS, '_').replace(OUTER_SEPARATORS, '');
}
