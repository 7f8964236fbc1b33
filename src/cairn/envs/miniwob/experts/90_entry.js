// The one function that sessions call.

window.__cairnExpertTasks = () => Object.keys(experts).sort();
window.__cairnExpert = (task) => {
  window.__cairnNodes = [];
  const expert = experts[task];
  return expert === undefined ? null : (expert() ?? null);
};
