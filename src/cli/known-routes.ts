/** The routes of a running sidegate, to explain a name that none of them has. */
import { findNearest } from '../config/schema/did-you-mean.ts';
import type { ApiClient } from './api-client.ts';

/** Requests without a route, and those of the forward proxy; no config can have such a name. */
const SPECIAL: readonly string[] = ['_unmatched', '_proxy'];

/** Why no request can have the route; undefined if it exists. */
export async function findRouteProblem(client: ApiClient, name: string): Promise<string | undefined> {
  const overview = (await client.request('GET', '/overview')) as {
    readonly routes?: readonly { readonly name: string }[];
  } | null;
  if (!Array.isArray(overview?.routes)) throw client.toStranger();
  const names = [...overview.routes.map((route) => route.name), ...SPECIAL];
  if (names.includes(name)) return undefined;
  const nearest = findNearest(name, names);
  const suggestion = nearest === undefined ? '' : `did you mean ${nearest}? `;
  return `no route is named ${name}; ${suggestion}The routes are ${names.join(', ')}`;
}
