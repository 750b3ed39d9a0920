/** Changes the app's containers so that the sidecar intercepts its requests, by mode. */

import { trimEnd } from '../../core/text.ts';
import { lastingContainersOf } from './app.ts';
import { rewriteProbes } from './app-probes.ts';
import { handlersOf } from './handlers.ts';
import type { InterceptionMode } from './kubernetes-values.ts';
import { DOMAIN } from './names.ts';
import type { Work } from './plan.ts';
import { has, listAt, type Raw, textAt } from './raw.ts';

const MAX_PORT_NAME_LENGTH = 15;
const DASH = new Set('-');
const LOOPBACK = '127.0.0.1';

const MODES: Readonly<Record<InterceptionMode, (work: Work) => readonly string[]>> = {
  service: warnOfHostPort,
  rename: renamePort,
  'same-port': moveToLoopback,
  env: moveToPort,
};

/** Changes the app's containers, and returns the sidecar's `--app-probe` values. */
export function intercept(work: Work): readonly string[] {
  return MODES[work.plan.interception.mode](work);
}

function warnOfHostPort({ plan: { app }, findings }: Work): readonly string[] {
  const hostPort = app.declared?.hostPort;
  if (hostPort !== undefined && hostPort !== 0)
    findings.warn(`hostPort ${hostPort} bypasses the sidecar: remove it, or use interception mode same-port or env`);
  return [];
}

function renamePort(work: Work): readonly string[] {
  const { plan, patch, findings } = work;
  const { declared, name, path, container } = plan.app;
  if (declared?.name === undefined) {
    findings.deny(
      'app_unclear',
      `interception mode rename requires a named port: name port ${plan.app.port} of the container ${name} like the targetPort of the Service`,
    );
    return [];
  }
  warnOfHostPort(work);
  const renamed = toFreeName(declared.name, container);
  patch.set([...path, 'ports', declared.index], listAt(container, 'ports')[declared.index], 'name', renamed);
  for (const handler of handlersOf(plan.app))
    if (handler.writtenPort === declared.name) patch.set([...handler.path, handler.action], handler.request, 'port', renamed);
  return [];
}

/** `http` → `http-app`, within the maximum length of a port name (RFC 6335 §5.1). */
function toFreeName(name: string, container: Raw): string {
  const taken = new Set(listAt(container, 'ports').map((port) => textAt(port, 'name')));
  for (let number = 1; ; number++) {
    const ending = number === 1 ? '-app' : `-app${number}`;
    const free = trimEnd(name.slice(0, MAX_PORT_NAME_LENGTH - ending.length), DASH) + ending;
    if (!taken.has(free)) return free;
  }
}

function moveToLoopback(work: Work): readonly string[] {
  const { variable } = work.plan.interception;
  if (variable !== undefined) setVariable(work, variable, LOOPBACK);
  return rewriteProbes(work);
}

function moveToPort(work: Work): readonly string[] {
  const { pod, plan, patch } = work;
  setVariable(work, plan.interception.variable ?? 'PORT', String(plan.appPort));
  for (const container of lastingContainersOf(pod))
    for (const handler of handlersOf(container))
      if (handler.port === plan.app.port) patch.set([...handler.path, handler.action], handler.request, 'port', plan.appPort);
  return [];
}

/** If a variable is set twice, the last value counts. */
function setVariable({ plan: { app }, patch, findings }: Work, name: string, value: string): void {
  const env = listAt(app.container, 'env');
  const index = env.findLastIndex((entry) => textAt(entry, 'name') === name);
  const found = env[index];
  const path = [...app.path, 'env'];
  if (index === -1) patch.append(path, has(app.container, 'env'), [{ name, value }]);
  else if (has(found, 'valueFrom'))
    findings.deny(
      'invalid_setting',
      `the variable ${name} of the container ${app.name} uses valueFrom, but ${DOMAIN}/interception has to set it: remove the variable from the container`,
    );
  else if (textAt(found, 'value') !== value) patch.set([...path, index], found, 'value', value);
}
