/** The rules of app probes: each once, and never a question that comes back to the gate. */
import { isReachedBy } from '../../core/listen-address.ts';
import type { Config } from '../schema/config.ts';
import type { SocketAddress } from '../schema/scalars.ts';
import { error, type Rating } from './rating.ts';

const DEFAULT_PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443 };

/** Where the URL of a probe leads. */
export function toProbeAddress(href: string): SocketAddress {
  const { hostname, port, protocol } = new URL(href);
  const host = hostname.startsWith('[') ? hostname.slice(1, -1) : hostname;
  return { host, port: port === '' ? (DEFAULT_PORTS[protocol] ?? 0) : Number(port) };
}

/** Everything wrong with them. */
export function checkAppProbes({ admin, listen }: Config): Rating[] {
  const seen = new Set<string>();
  return admin.appProbes.flatMap(({ container, kind, url }, index) => {
    const path = ['admin', 'appProbes', index];
    const found: Rating[] = [];
    const id = `${container}/${kind}`;
    if (seen.has(id)) found.push(error(path, `${id} is named twice`, 'one URL answers for each probe of a container'));
    seen.add(id);
    const aim = toProbeAddress(url);
    if ([listen.address, admin.address].some((address) => isReachedBy(address, aim)))
      found.push(error([...path, 'url'], 'this is the gate itself', 'name the port the app listens on'));
    return found;
  });
}
