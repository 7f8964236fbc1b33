let count = 0;
onmessage = () => postMessage(count += 1);
