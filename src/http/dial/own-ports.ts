/** The ports that this process listens on. The proxy never connects to them, as they may trust connections from this machine. */
import { networkInterfaces } from 'node:os';
import { isLoopbackIp, normalizeIp } from '../../core/ip-address.ts';

/** The set of these ports. */
export class OwnPorts {
  readonly #ports = new Set<number>();

  /** Adds ports. */
  add(...ports: readonly number[]): void {
    for (const port of ports) this.#ports.add(port);
  }

  /** Whether a connection to this address would reach this process. */
  has(address: string, port: number): boolean {
    return this.#ports.has(port) && isLocal(address);
  }
}

/** A connection to "any address" goes to this machine. */
const ANY: ReadonlySet<string | undefined> = new Set(['0.0.0.0', '::']);

/** Reads the interfaces each time, as a pod may gain addresses; called only if the port matches. */
function isLocal(address: string): boolean {
  const ip = normalizeIp(address);
  if (isLoopbackIp(address) || ANY.has(ip)) return true;
  const own = Object.values(networkInterfaces()).flatMap((entries = []) => entries.map((entry) => normalizeIp(entry.address)));
  return ip !== undefined && own.includes(ip);
}
