/** The rules of app probes: no duplicates, and no probe of the gate itself. */
import { isReachedBy } from '../../core/listen-address.ts';
import { error, type Problem } from '../../core/problem.ts';
import type { Config } from '../schema/config.ts';
import type { SocketAddress } from '../schema/scalars.ts';

const DEFAULT_PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443 };

/** The address that the URL of a probe refers to. */
export function toProbeAddress(href: string): SocketAddress {
  const { hostname, port, protocol } = new URL(href);
  const host = hostname.startsWith('[') ? hostname.slice(1, -1) : hostname;
  return { host, port: port === '' ? (DEFAULT_PORTS[protocol] ?? 0) : Number(port) };
}

/** Everything wrong with them. */
export function checkAppProbes({ admin, listen }: Config): Problem[] {
  const seen = new Set<string>();
  return admin.appProbes.flatMap(({ container, kind, url }, index) => {
    const path = ['admin', 'appProbes', index];
    const found: Problem[] = [];
    const id = `${container}/${kind}`;
    if (seen.has(id)) found.push(error(path, `${id} is configured twice`, 'each probe of a container has exactly one URL'));
    seen.add(id);
    const target = toProbeAddress(url);
    if ([listen.address, admin.address].some((address) => isReachedBy(address, target)))
      found.push(error([...path, 'url'], 'this URL points to sidegate itself', 'use the port that the app listens on'));
    return found;
  });
}
