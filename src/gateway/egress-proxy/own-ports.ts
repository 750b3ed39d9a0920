/** The ports that this process listens on: no way through the proxy leads back into it, as what comes from here may be trusted there. */
import { networkInterfaces } from 'node:os';
import { isLoopbackIp, normalizeIp } from '../../core/ip-address.ts';

/** Which they are. */
export class OwnPorts {
  readonly #ports = new Set<number>();

  /** More of them. */
  add(...ports: readonly number[]): void {
    for (const port of ports) this.#ports.add(port);
  }

  /** Would a connection to it come out here? */
  has(address: string, port: number): boolean {
    return this.#ports.has(port) && isLocal(address);
  }
}

/** A connection to "any address" goes to this machine. */
const ANY: ReadonlySet<string | undefined> = new Set(['0.0.0.0', '::']);

/** Read anew, as a pod may gain addresses; only asked where the port fits. */
function isLocal(address: string): boolean {
  const ip = normalizeIp(address);
  if (isLoopbackIp(address) || ANY.has(ip)) return true;
  const own = Object.values(networkInterfaces()).flatMap((entries = []) => entries.map((entry) => normalizeIp(entry.address)));
  return ip !== undefined && own.includes(ip);
}
