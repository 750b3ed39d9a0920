/** CEL about the ports of all containers that last as long as the app. */

/** Whether a TCP port `p` of them meets a condition, in which `isApp` stands for "of the app". */
export function lastingPorts(condition: string): string {
  const some = (isApp: string): string =>
    `c.?ports.orValue([]).exists(p, p.?protocol.orValue('TCP') == 'TCP' && (${condition.replaceAll('isApp', isApp)}))`;
  return `(variables.containers.exists(c, ${some('c.name == variables.app.name')}) || variables.initContainers.exists(c, c.?restartPolicy.orValue('') == 'Always' && ${some('false')}))`;
}
