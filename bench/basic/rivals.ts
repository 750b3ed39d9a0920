/** The rivals of the HTTP Basic benchmark: how each is started on the gate's core, and in which scenarios it takes part. */
import type { ChildProcess } from 'node:child_process';
import { toNginx } from '../bench-environment.ts';
import { end, findFreePort, GATE_CORE, type Launch, launch, untilListening } from '../children.ts';
import { listFamily } from '../machine.ts';
import { toSidegate } from '../rivals.ts';
import type { BasicEnvironment } from './basic-environment.ts';
import { writeCaddyConfig, writeNginxConfig, writeSidegateConfig } from './configs.ts';
import { findCaddy } from './setup.ts';

/** A participating process; `proxied` is a sidegate that trusts the client address of a proxy in front of it. */
export type GateName = 'nginx' | 'caddy' | 'sidegate' | 'proxied';

/** A running rival. */
export interface Gate {
  readonly name: GateName;
  readonly port: number;
  /** The port where Caddy serves the same without an access log. */
  readonly quietPort: number;
  /** The process and its workers. */
  readonly pids: readonly number[];
  readonly stop: () => Promise<void>;
}

/** In the order of each round. */
export const GATES: readonly GateName[] = ['nginx', 'caddy', 'sidegate', 'proxied'];

/** Starts a rival and waits until it accepts connections; undefined if it is not installed. */
export async function startGate(
  name: GateName,
  environment: BasicEnvironment,
  nodeArgs: readonly string[] = [],
): Promise<Gate | undefined> {
  const ports = { port: await findFreePort(), quietPort: await findFreePort(), adminPort: await findFreePort() };
  const how = toLaunch(name, { environment, ...ports, nodeArgs });
  if (how === undefined) return undefined;
  const child: ChildProcess = launch(how);
  await untilListening(child, ports.port);
  return { name, ...ports, pids: listFamily(child.pid ?? 0), stop: () => end(child) };
}

interface Start {
  readonly environment: BasicEnvironment;
  readonly port: number;
  readonly quietPort: number;
  readonly adminPort: number;
  readonly nodeArgs: readonly string[];
}

function toLaunch(name: GateName, { environment, port, quietPort, adminPort, nodeArgs }: Start): Launch | undefined {
  switch (name) {
    case 'nginx':
      return toNginx(environment.folder, 'nginx', GATE_CORE, writeNginxConfig(environment, port));
    case 'caddy': {
      const command = findCaddy();
      if (command === undefined) return undefined;
      const args = ['run', '--adapter', 'caddyfile', '--config', writeCaddyConfig(environment, port, quietPort)];
      // Caddy stores its data in the home folder.
      const env = { HOME: environment.folder, XDG_DATA_HOME: environment.folder, XDG_CONFIG_HOME: environment.folder };
      return { core: GATE_CORE, command, args, env, log: `${environment.folder}/caddy.log` };
    }
    default:
      return toSidegate(writeSidegateConfig(environment, { name, port, adminPort, isProxied: name === 'proxied' }), { nodeArgs });
  }
}
