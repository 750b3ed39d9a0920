/** Alternative names of a scheme's headers: senders that use Svix write `svix-*`, or `webhook-*` if they configured it. */
import type { HeaderFields } from '../../core/headers.ts';
import type { SchemeDescription } from './description.ts';

/** The description with each header under its alternative name. */
export function renameToTwins(description: SchemeDescription): SchemeDescription {
  const { twins = {}, signature, id, timestamp } = description;
  const rename = (name: string): string => twins[name] ?? name;
  const renameSource = <T extends object>(source: T): T =>
    'header' in source ? { ...source, header: rename(String(source.header)) } : source;
  return {
    ...description,
    ...(signature === undefined ? undefined : { signature: { ...signature, header: rename(signature.header) } }),
    ...(id === undefined ? undefined : { id: renameSource(id) }),
    ...(timestamp === undefined ? undefined : { timestamp: { ...timestamp, from: renameSource(timestamp.from) } }),
    twins: Object.fromEntries(Object.entries(twins).map(([own, twin]) => [twin, own])),
  };
}

/**
 * Compiles the test whether the gate reads a request under the alternative names. A single header under its own name decides against
 * it: a mixture could be one delivery for the gate and another for the app, because libraries prefer one set of names.
 */
export function compileTwinTest({ twins, acceptsTwins }: SchemeDescription): (headers: HeaderFields) => boolean {
  if (twins === undefined || acceptsTwins === undefined) return () => false;
  const own = Object.keys(twins).map((name) => name.toLowerCase());
  const others = Object.values(twins).map((name) => name.toLowerCase());
  return (headers) =>
    own.every((name) => headers.get(name) === undefined) && others.some((name) => headers.get(name) !== undefined);
}

/** Names the headers that only have their alternative name; undefined if all have their own. */
export function describeMixture({ twins = {} }: SchemeDescription, headers: HeaderFields): string | undefined {
  const isPresent = (name: string): boolean => headers.get(name.toLowerCase()) !== undefined;
  const missing = Object.keys(twins).filter((name) => !isPresent(name));
  const others = Object.values(twins).filter(isPresent);
  if (missing.length === 0) return undefined;
  return `the request has ${others.join(', ')}, but not ${missing.join(', ')}; all headers must have names of one kind`;
}
